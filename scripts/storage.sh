#!/usr/bin/env bash
# storage.sh ARGUMENTS OF PYTEST: run tests with an object store that speaks S3, a process of Python's moto, also read by
# Hadoop's client, and with a slow disk, a file system of FUSE.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh test storage
scripts/develop.sh
if ! command -v fusermount3 >/dev/null && on_debian_as_root; then
    apt_install fuse3 || true
fi
HEADGATE_TEST_S3A="$(scripts/s3a_jars.sh)"
export HEADGATE_TEST_S3A
exec "$VENV_PYTHON" -m pytest -q "$@"
