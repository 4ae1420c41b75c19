/* What examples/device.c makes of conformance vectors; tests/docs/test_devices_page.py asks. */
#define main device_main
#include "device.c"
#undef main

int main(int count, char **said) {
    unsigned char bytes[4096], seed[32];
    char header[sizeof bytes], signature[129];
    hex id;
    if (count == 2) { /* a model's bytes: its digest */
        size_t size = strlen(said[1]) / 2;
        for (size_t i = 0; i < size; i++) sscanf(said[1] + 2 * i, "%2hhx", bytes + i);
        sha256_hex(bytes, size, id);
        puts(id);
        return 0;
    }
    /* seed ledger start model selection sequence created examples size parent...: key, header, id, signature */
    struct update update = {.parent_count = (uint64_t)count - 10};
    put_hex(seed, said[1]);
    EVP_PKEY *key = key_of(seed, update.author);
    char *texts[] = {update.ledger, update.start, update.model, update.selection};
    for (int i = 0; i < 4; i++) strcpy(texts[i], said[2 + i]);
    uint64_t *numbers[] = {&update.sequence, &update.created_at_ms, &update.num_examples, &update.model_size};
    for (int i = 0; i < 4; i++) *numbers[i] = strtoull(said[6 + i], NULL, 10);
    for (int i = 10; i < count; i++) strcpy(update.parents[i - 10], said[i]);
    size_t tag = sizeof "dag-acfl/transaction/v1", size = tagged_header(&update, bytes);
    to_hex(bytes + tag, size - tag, header);
    sign(key, &update, id, signature);
    printf("%s %s %s %s\n", update.author, header, id, signature);
    EVP_PKEY_free(key);
    return 0;
}
