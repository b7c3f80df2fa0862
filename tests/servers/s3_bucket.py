#!/usr/bin/env python3
"""Makes buckets on an S3 server, with Python's standard library only.

    s3_bucket.py SERVER NAME[:HOW]...    SERVER is seaweedfs or rgw; HOW is one of
        versioned                        versioning on
        lock                             Object Lock (and with it versioning) on, no default retention
        lock=MODE/TIME                   the same with a default retention: COMPLIANCE or GOVERNANCE, and 1d, 2y, ...
    s3_bucket.py SERVER --show NAME...   versioning and Object Lock of a bucket, as the server answers

Reads KRABKA_TEST_SERVER_ENDPOINT, _ACCESS_KEY_ID, _SECRET_ACCESS_KEY and _REGION, which the server's script exports.
"""
import base64
import datetime
import hashlib
import hmac
import os
import re
import sys
import urllib.error
import urllib.request

XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class Server:
    def __init__(self, name):
        def setting(what):
            return os.environ[f"KRABKA_TEST_{name.upper()}_{what}"]

        self.endpoint = setting("ENDPOINT")
        self.key, self.secret, self.region = setting("ACCESS_KEY_ID"), setting("SECRET_ACCESS_KEY"), setting("REGION")

    def call(self, method, path, query="", body=b"", headers=None):
        """One request signed with AWS Signature Version 4: its status and body."""
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        signed = {"host": self.endpoint.split("//", 1)[1], "x-amz-date": stamp, "x-amz-content-sha256": digest}
        signed.update(headers or {})
        if body:
            signed["content-md5"] = base64.b64encode(hashlib.md5(body).digest()).decode()
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        canonical = "\n".join([method, path, f"{query}=" if query else "", lines, names, digest])
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{self.secret}".encode()
        for part in (*scope.split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        )
        url = f"{self.endpoint}{path}" + (f"?{query}" if query else "")
        request = urllib.request.Request(url, method=method, data=body or None, headers=signed)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def must(self, *args, **kwargs):
        status, body = self.call(*args, **kwargs)
        if status // 100 != 2:
            sys.exit(f"s3_bucket.py: {args[0]} {args[1]} {args[2:3]}: {status} {body[:400]}")

    def make(self, name, how):
        lock = re.fullmatch(r"lock(?:=(COMPLIANCE|GOVERNANCE)/(\d+)([dy]))?", how)
        if not (lock or how in ("", "versioned")):
            sys.exit(f"s3_bucket.py: {name}:{how}: not a kind of bucket")
        self.must("PUT", f"/{name}", headers={"x-amz-bucket-object-lock-enabled": "true"} if lock else None)
        if how == "versioned":
            config = f"<VersioningConfiguration {XMLNS}><Status>Enabled</Status></VersioningConfiguration>"
            self.must("PUT", f"/{name}", "versioning", config.encode())
        if lock and lock[1]:
            unit = {"d": "Days", "y": "Years"}[lock[3]]
            config = (
                f"<ObjectLockConfiguration {XMLNS}><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
                f"<Rule><DefaultRetention><Mode>{lock[1]}</Mode><{unit}>{lock[2]}</{unit}></DefaultRetention></Rule>"
                "</ObjectLockConfiguration>"
            )
            self.must("PUT", f"/{name}", "object-lock", config.encode())


def main(args):
    if len(args) < 2:
        sys.exit(__doc__)
    server = Server(args[0])
    if args[1] == "--show":
        for name in args[2:]:
            for query in ("versioning", "object-lock"):
                print(name, query, *server.call("GET", f"/{name}", query))
        return
    for bucket in args[1:]:
        name, _, how = bucket.partition(":")
        server.make(name, how)


if __name__ == "__main__":
    main(sys.argv[1:])
