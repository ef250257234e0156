#!/usr/bin/env bash
# storage.sh ARGUMENTS OF PYTEST: run tests with object stores, Python's moto for S3, one for Google Cloud Storage and
# Azurite, also read by Hadoop's clients, and with a slow disk, a file system of FUSE.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh test storage
scripts/develop.sh
if ! command -v fusermount3 >/dev/null && on_debian_as_root; then
    apt_install fuse3 || true
fi
HEADGATE_TEST_S3A="$(scripts/store_jars.sh s3a)"
HEADGATE_TEST_GS="$(scripts/store_jars.sh gs)"
HEADGATE_TEST_ABFS="$(scripts/store_jars.sh abfs)"
HEADGATE_TEST_AZURITE="$(scripts/azurite.sh)"
export HEADGATE_TEST_S3A HEADGATE_TEST_GS HEADGATE_TEST_ABFS HEADGATE_TEST_AZURITE
exec "$VENV_PYTHON" -m pytest -q "$@"
