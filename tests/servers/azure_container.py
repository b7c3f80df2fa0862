#!/usr/bin/env python3
"""Makes containers on an Azure Blob Storage emulator, with Python's standard library only.

    azure_container.py URL ACCOUNT KEY NAME...
"""
import base64
import hashlib
import hmac
import sys
import urllib.error
import urllib.request
from email.utils import formatdate


def make(url, account, key, name):
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    # The string to sign: the method, twelve headers that this request leaves empty, the x-ms ones, the resource.
    text = "PUT" + "\n" * 12
    text += "".join(f"{header}:{headers[header]}\n" for header in sorted(headers))
    # The emulator has the account in the path, so the resource names it twice.
    text += f"/{account}/{account}/{name}\nrestype:container"
    signature = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{url}/{account}/{name}?restype=container", method="PUT", headers=headers)
    try:
        urllib.request.urlopen(request, timeout=20).close()
    except urllib.error.HTTPError as answer:
        sys.exit(f"azure_container.py: {name}: {answer.code} {answer.read()[:300]!r}")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    for container in sys.argv[4:]:
        make(*sys.argv[1:4], container)
