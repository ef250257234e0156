#!/usr/bin/env bash
# browser.sh ARGUMENTS OF PYTEST: run tests in a headless Chromium.
source "$(dirname "$0")/env.sh"

scripts/java.sh
scripts/venv.sh docs test
found() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }
if ! found && on_debian_as_root; then
    apt_install chromium chromium-driver || true
fi
found || die "no chromium and chromedriver found: these tests drive a browser" "apt-get install chromium chromium-driver"
exec "$VENV_PYTHON" -m pytest -q "$@"
