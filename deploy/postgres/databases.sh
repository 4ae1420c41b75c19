#!/bin/sh
# Run once by PostgreSQL's image, on an empty volume: a database and a user for each ledger server, who sees no other's.
set -eu

make() {
    psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="${POSTGRES_USER:-postgres}" --dbname=postgres \
        --set=name="$1" --set=password="$2" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name" TEMPLATE template0 ENCODING 'UTF8';
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
}

make ledger_a "$LEDGER_A_PASSWORD"
make ledger_b "$LEDGER_B_PASSWORD"
make ledger_c "$LEDGER_C_PASSWORD"
