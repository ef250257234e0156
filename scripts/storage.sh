#!/usr/bin/env bash
# storage.sh ARGUMENTS OF PYTEST: run tests with object stores, a process of Python's moto that speaks S3 and a server that
# speaks Google Cloud Storage, also read by Hadoop's clients, and with a slow disk, a file system of FUSE.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh test storage
scripts/develop.sh
if ! command -v fusermount3 >/dev/null && on_debian_as_root; then
    apt_install fuse3 || true
fi
HEADGATE_TEST_S3A="$(scripts/store_jars.sh s3a)"
HEADGATE_TEST_GS="$(scripts/store_jars.sh gs)"
export HEADGATE_TEST_S3A HEADGATE_TEST_GS
exec "$VENV_PYTHON" -m pytest -q "$@"
