/* A client for a small device: libcurl, and SHA-256 and Ed25519 of OpenSSL's libcrypto; docs/devices.md leads here.
 *
 *     cc -O2 -o device device.c -lcurl -lcrypto
 *     head -c 32 /dev/urandom > device.key            the author, for good: keep it
 *     ./device http://127.0.0.1:8900 samples.txt 3    three updates
 *
 * It learns y = weight * x + bias from lines of x and y. device.state has the next sequence number and the newest
 * update: after a cut of power it goes on from there. DAG_ACFL_TOKEN is the token where the server asks for one.
 * For little-endian processors.
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MODEL_TYPE "application/vnd.safetensors"
#define die(...) (fprintf(stderr, "error: " __VA_ARGS__), fputc('\n', stderr), exit(1))
enum { PARENTS = 64, SAMPLES = 4096, INPUTS = 64, EPOCHS = 20, TRIES = 6, ANSWER = 1 << 20 };

typedef char hex[65]; /* 32 bytes as 64 digits and a NUL */
struct update {
    hex ledger, author, start, model, selection, parents[PARENTS];
    uint64_t sequence, created_at_ms, num_examples, model_size, parent_count;
};

static const char *server;
static struct { unsigned char *at; size_t size; } answer; /* of the last call; a NUL follows it */
static float sample[SAMPLES][INPUTS + 1];
static size_t samples, inputs;

/* -- the protocol's bytes -- */

static void to_hex(const unsigned char *bytes, size_t size, char *out) {
    for (size_t i = 0; i < size; i++) sprintf(out + 2 * i, "%02x", bytes[i]);
}

static void sha256_hex(const void *bytes, size_t size, hex out) {
    to_hex(SHA256(bytes, size, NULL), 32, out);
}

static unsigned char *put(unsigned char *at, uint64_t value, int size) { /* big-endian */
    while (size--) *at++ = (unsigned char)(value >> 8 * size);
    return at;
}

static unsigned char *put_hex(unsigned char *at, const hex digits) {
    for (int i = 0; i < 32; i++) sscanf(digits + 2 * i, "%2hhx", at++);
    return at;
}

/* An update's header, of an author with a key, behind the tag that its id is hashed with. */
static size_t tagged_header(const struct update *update, unsigned char *out) {
    static const char start[] = "dag-acfl/transaction/v1\0dagacfl\1"; /* the tag and its NUL; magic, version */
    unsigned char *at = (unsigned char *)memcpy(out, start, sizeof start - 1) + sizeof start - 1;
    at = put_hex(put(put_hex(at, update->ledger), 0x0101, 2), update->author); /* an update; a key */
    at = put(put(put(at, update->sequence, 8), update->created_at_ms, 8), update->num_examples, 8);
    at = put_hex(put_hex(put(at, 0, 8), update->start), update->model); /* no noise */
    at = put_hex(put(at, update->model_size, 8), update->selection);
    at = put(at, update->parent_count, 2);
    for (size_t i = 0; i < update->parent_count; i++) at = put_hex(at, update->parents[i]);
    return (size_t)(put(at, 0, 4) - out); /* no metrics, no extensions */
}

static EVP_PKEY *key_of(const unsigned char seed[32], hex author) {
    unsigned char public[32];
    size_t size = sizeof public;
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
    if (!key || EVP_PKEY_get_raw_public_key(key, public, &size) != 1) die("libcrypto has no Ed25519");
    to_hex(public, 32, author);
    return key;
}

static void sign(EVP_PKEY *key, const struct update *update, hex id, char signature[129]) {
    unsigned char bytes[512 + 32 * PARENTS], message[51] = "dag-acfl/author/v1", made[64];
    size_t size = sizeof made;
    sha256_hex(bytes, tagged_header(update, bytes), id);
    put_hex(message + 19, id); /* behind the tag's NUL */
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (EVP_DigestSignInit(context, NULL, NULL, NULL, key) != 1 ||
        EVP_DigestSign(context, made, &size, message, sizeof message) != 1) die("libcrypto does not sign");
    EVP_MD_CTX_free(context);
    to_hex(made, 64, signature);
}

/* -- HTTP -- */

static size_t take(char *data, size_t one, size_t count, void *unused) {
    (void)one, (void)unused;
    if (count > ANSWER - answer.size) die("%s answers with more than %d bytes", server, ANSWER);
    if (!(answer.at = realloc(answer.at, answer.size + count + 1))) die("out of memory");
    memcpy(answer.at + answer.size, data, count);
    answer.at[answer.size += count] = 0;
    return count;
}

static void add_part(curl_mime *form, const char *name, const char *type, const void *data, size_t size) {
    curl_mimepart *part = curl_mime_addpart(form);
    curl_mime_name(part, name), curl_mime_type(part, type), curl_mime_data(part, data, size);
}

/* GET without a body, else POST; with a transaction both are parts of a form. What is busy or cut is tried again: every
 * call may be repeated, a publication because its bytes are its id. */
static long call(const char *path, const char *type, const void *body, size_t size, const char *transaction) {
    char url[512], head[64];
    long status = 0;
    CURL *curl = curl_easy_init();
    curl_mime *form = curl_mime_init(curl);
    snprintf(url, sizeof url, "%s%s", server, path);
    snprintf(head, sizeof head, "Content-Type: %s", type);
    struct curl_slist *heads = curl_slist_append(NULL, head);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 300L);
    if (getenv("DAG_ACFL_TOKEN")) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, getenv("DAG_ACFL_TOKEN"));
    }
    if (transaction) {
        add_part(form, "transaction", "application/json", transaction, strlen(transaction));
        add_part(form, "model", MODEL_TYPE, body, size);
        curl_easy_setopt(curl, CURLOPT_MIMEPOST, form);
    } else if (body) {
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, heads);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)size);
    }
    for (unsigned tried = 0; tried < TRIES && (!status || status == 408 || status == 429 || status > 499); tried++) {
        sleep(tried ? 1u << tried : 0);
        answer.size = status = 0;
        take("", 1, 0, NULL); /* an empty answer has a NUL, too */
        if (curl_easy_perform(curl) == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_slist_free_all(heads), curl_mime_free(form), curl_easy_cleanup(curl);
    if (!status) die("%s cannot be reached", server);
    if (status / 100 != 2 && status != 409) die("%ld: %s", status, answer.size ? (char *)answer.at : "");
    return status;
}

/* 64 digits behind a text of the answer, which has no spaces; returns the quote that follows. A JSON library looks up
 * names. */
static const char *digits(const char *from, const char *text, hex out) {
    const char *found = strstr(from, text);
    if (!found || sscanf(found + strlen(text), "%64[0-9a-f]", out) != 1 || strlen(out) != 64 ||
        found[strlen(text) + 64] != '"')
        die("no %s in %.200s", text, from);
    return found + strlen(text) + 64;
}

/* A model of this digest, which is that of its bytes; to be freed. */
static unsigned char *fetch(const hex digest, size_t *size) {
    char path[96];
    hex is;
    snprintf(path, sizeof path, "/v1/models/%s", digest);
    call(path, "", NULL, 0, NULL);
    sha256_hex(answer.at, answer.size, is);
    if (strcmp(is, digest)) die("another model than was asked for");
    *size = answer.size;
    return memcpy(malloc(*size), answer.at, *size);
}

/* -- learning -- */

static void read_samples(const char *path) {
    char line[4096], *end;
    FILE *file = fopen(path, "r");
    for (; file && samples < SAMPLES && fgets(line, sizeof line, file); samples++) {
        size_t count = 0;
        for (char *at = line; count <= INPUTS; at = end, count++) {
            sample[samples][count] = strtof(at, &end);
            if (end == at) break;
        }
        if (count < 2 || (samples && count != inputs + 1))
            die("%s, line %zu: not as many numbers as above", path, samples + 1);
        inputs = count - 1;
    }
    if (!samples) die("no samples in %s", path);
    fclose(file);
}

/* Gradient descent in the file itself: behind the length of its header and the header lie the bias and the weights. */
static void train(unsigned char *model, size_t size) {
    size_t values = 4 * (inputs + 1);
    uint64_t header = 0; /* a server says it: no sum of it is formed, which could wrap */
    if (size >= 8 + values) memcpy(&header, model, 8);
    if (!header || header % 4 || header != size - 8 - values)
        die("the ledger's model is not a bias and %zu weights", inputs);
    float *value = (float *)(model + 8 + header), sum = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        float gradient[INPUTS + 1] = {0};
        sum = 0;
        for (size_t i = 0; i < samples; i++) {
            float error = value[0] - sample[i][inputs];
            for (size_t j = 0; j < inputs; j++) error += value[1 + j] * sample[i][j];
            for (size_t j = 0; j <= inputs; j++) gradient[j] += error * (j ? sample[i][j - 1] : 1);
            sum += error * error;
        }
        for (size_t j = 0; j <= inputs; j++) value[j] -= 0.1f * gradient[j] / samples;
    }
    printf("mean squared error %.4f\n", sum / samples);
}

int main(int count, char **arguments) {
    struct update update = {0};
    unsigned char seed[32], *model;
    hex newest = "", id;
    size_t size;
    if (count != 4) die("say: %s URL SAMPLES UPDATES", arguments[0]);
    server = arguments[1];
    read_samples(arguments[2]);
    FILE *file = fopen("device.key", "rb");
    if (!file || fread(seed, 1, 32, file) != 32) die("no key; make one: head -c 32 /dev/urandom > device.key");
    fclose(file);
    EVP_PKEY *key = key_of(seed, update.author);
    if ((file = fopen("device.state", "r"))) {
        if (fscanf(file, "%" SCNu64 " %64s", &update.sequence, newest) != 2) die("device.state is damaged");
        fclose(file);
    }

    call("/v1/genesis?brief=1", "", NULL, 0, NULL);
    digits((char *)answer.at, "\"ledger\":\"", update.ledger);
    digits((char *)answer.at, "\"model\":{\"digest\":\"", update.start);
    for (int left = atoi(arguments[3]); left > 0; left--) {
        char text[1024], signature[129];
        if (*newest) { /* 1. Whose models resemble mine? */
            snprintf(text, sizeof text, "{\"transaction\":\"%s\"}", newest);
            call("/v1/selections?brief=1", "application/json", text, strlen(text), NULL);
        } else { /* Joining: the genesis model, trained, asks. */
            model = fetch(update.start, &size);
            train(model, size);
            call("/v1/selections?brief=1", MODEL_TYPE, model, size, NULL);
            free(model);
        }
        digits((char *)answer.at, "\"id\":\"", update.selection);
        digits((char *)answer.at, "\"aggregate\":{\"digest\":\"", update.start);
        const char *at = digits((char *)answer.at, "\"parents\":[\"", update.parents[0]);
        for (update.parent_count = 1; at[1] == ','; update.parent_count++) {
            if (update.parent_count == PARENTS) die("more parents than this device has room for");
            at = digits(at, ",\"", update.parents[update.parent_count]);
        }

        model = fetch(update.start, &size); /* 2. Their average, to go on from. */
        train(model, size);

        sha256_hex(model, size, update.model); /* 3. Publish. */
        update.model_size = size;
        update.num_examples = samples;
        update.created_at_ms = (uint64_t)time(NULL) * 1000; /* nobody goes by it: 0 without a clock */
        sign(key, &update, id, signature);
        snprintf(text, sizeof text,
                 "{\"selection\":\"%s\",\"num_examples\":%zu,\"author\":\"key:%s\",\"sequence\":%" PRIu64
                 ",\"created_at_ms\":%" PRIu64 ",\"id\":\"%s\",\"signature\":\"%s\"}",
                 update.selection, samples, update.author, update.sequence, update.created_at_ms, id, signature);
        if (call("/v1/transactions?brief=1", "", model, size, text) == 409) /* published before the power went */
            digits((char *)answer.at, "\"existing\":\"", id);
        free(model);
        printf("#%" PRIu64 " %.12s approves %" PRIu64 "\n", update.sequence++, id, update.parent_count);
        file = fopen("device.state.new", "w");
        if (!file || fprintf(file, "%" PRIu64 " %s\n", update.sequence, strcpy(newest, id)) < 0 || fflush(file) ||
            fsync(fileno(file)) || fclose(file) || rename("device.state.new", "device.state"))
            die("cannot keep device.state");
    }
    EVP_PKEY_free(key);
    return 0;
}
