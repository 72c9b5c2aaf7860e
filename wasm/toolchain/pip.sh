#!/bin/bash
# pip.sh FOLDER: prints the path of a pip wheel, which python3 can run as it is (python3 WHEEL/pip).
# For a Debian that has Python without pip.
set -euo pipefail
. "$(dirname "$0")/apt.sh"
command -v apt-get >/dev/null || { echo "no pip and no apt here: install Python's pip" >&2; exit 1; }
mkdir -p "$1"
private_apt "$1/apt" >&2
(cd "$1" && retry apt-get -qq download python3-pip-whl >&2)
dpkg-deb -x "$1"/python3-pip-whl_*.deb "$1"
echo "$1"/usr/share/python-wheels/pip-*.whl
