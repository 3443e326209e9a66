# SPDX-License-Identifier: Apache-2.0
# tls_clients.sh URL HTTP3 ADDRESS CHROMIUM: requests by TLS clients of several kinds. Each has a path
# of its own.
set -eu
url=$1 http3=$2 address=$3 chromium=$4
echo ready
read -r _
curl -sSk --http1.1 --tls-max 1.2 "$url/hello?curl12"
curl -sSk --http1.1 --tlsv1.3 "$url/hello?curl13"
/usr/bin/python3 -c 'import ssl, sys, urllib.request
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
print(urllib.request.urlopen(sys.argv[1], context=context).read().decode(), end="")' "$url/hello?python"
/usr/bin/node -e 'require("https").get(process.argv[1], {rejectUnauthorized: false}, (r) => r.pipe(process.stdout))' "$url/hello?node"
# This one writes its secrets well after its packets.
late=$(mktemp)
SSLKEYLOGFILE=$late curl -sSk --http1.1 "$url/hello?late"
sleep 0.2
cat "$late" >>"$SSLKEYLOGFILE"
rm "$late"
"$http3" get "$address" 5443 1000 >/dev/null
home=$(mktemp -d)
HOME=$home "$chromium" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update \
	--disable-sync --ignore-certificate-errors --user-data-dir="$home" --virtual-time-budget=10000 --dump-dom "$url/page.html" 2>/dev/null
rm -rf "$home"
