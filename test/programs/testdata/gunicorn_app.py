# SPDX-License-Identifier: Apache-2.0
#
# Answers with the checksum of a request.

import hashlib
def app(env, start):
    body = env["wsgi.input"].read(int(env.get("CONTENT_LENGTH") or 0))
    start("200 OK", [("Content-Type", "text/plain")])
    return [env["REQUEST_METHOD"].encode(), b" ", hashlib.sha256(body).hexdigest().encode()]
