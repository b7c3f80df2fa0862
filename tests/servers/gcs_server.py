#!/usr/bin/env python3
"""A stand-in for Google Cloud Storage, in memory, with Python's standard library only.

    gcs_server.py [--port 4443] NAME[:HOW]...    HOW: versioned, retained=SECONDS (a retention policy), or
                                                 locked=SECONDS (one that is locked)

It answers the XML API calls that the `object_store` crate makes (objects, ranges, conditions, lists, multipart
uploads, generation preconditions), the list of open multipart uploads, and the JSON API calls for a bucket, its
retention policy and the policy's lock. It was written from Google's documentation and is not Google's code: a test that
passes shows that requests, answers and error handling fit together, not how Google Cloud Storage itself answers.

Tests can make requests fail:  POST /_fault  {"method": "PUT", "status": 503, "times": 2, "contains": "segment"}
"""
import argparse
import datetime
import hashlib
import itertools
import json
import re
import threading
import time
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

SMALLEST_PART = 5 * 1024 * 1024
JSON_API = "/storage/v1/b"
KEPT_HEADERS = ("content-type", "content-encoding", "content-disposition", "content-language", "cache-control")
XML = "<?xml version='1.0' encoding='UTF-8'?>"
NOT_MET = "At least one of the pre-conditions you specified did not hold."

# One lock over everything below: requests are short, and a test's outcome must not depend on their interleaving.
LOCK = threading.RLock()
BUCKETS = {}
UPLOADS = {}
FAULTS = []
NUMBERS = itertools.count(int(time.time() * 1_000_000))


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def no_such_key():
    return Refused(404, "NoSuchKey", "The specified key does not exist.")


def iso(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def md5_etag(body):
    return f'"{hashlib.md5(body).hexdigest()}"'


class Object:
    def __init__(self, body, headers):
        self.body, self.headers = body, headers
        self.generation = next(NUMBERS)
        self.created = time.time()
        self.etag = md5_etag(body)


class Upload:
    def __init__(self, bucket, key, headers):
        self.bucket, self.key, self.headers = bucket, key, headers
        self.id = f"u{next(NUMBERS)}"
        self.created = time.time()
        self.parts = {}

    def body(self, wanted):
        """The object from the parts that the completion names, as (number, ETag)."""
        chunks, previous = [], 0
        for number, etag in wanted:
            if number <= previous:
                raise Refused(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
            previous = number
            if number not in self.parts or self.parts[number][0].strip('"') != etag.strip('"'):
                raise Refused(400, "InvalidPart", "One or more of the specified parts could not be found or the specified entity tag might not have matched the part's entity tag.")
            chunks.append(self.parts[number][1])
        if not chunks:
            raise Refused(400, "MalformedCompleteMultipartUpload", "The request names no parts.")
        if any(len(chunk) < SMALLEST_PART for chunk in chunks[:-1]):
            raise Refused(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size specified in your request.")
        return b"".join(chunks)


class Bucket:
    def __init__(self, config):
        self.name = config["name"]
        self.live, self.noncurrent = {}, {}
        self.versioning = self.locked = False
        self.retention = self.retention_since = None
        self.metageneration = 0
        self.update(config)

    def update(self, config):
        if "versioning" in config:
            self.versioning = bool(config["versioning"].get("enabled"))
        if "retentionPolicy" in config:
            policy = config["retentionPolicy"]
            period = None if policy is None else int(policy["retentionPeriod"])
            if self.locked and (period is None or period < self.retention):
                raise Refused(403, "forbidden", f"Cannot reduce retention duration or remove a locked Retention Policy for bucket '{self.name}'.")
            self.retention, self.retention_since = period, time.time()
        self.metageneration += 1

    def lock_retention(self):
        if self.retention is None:
            raise Refused(400, "invalid", "The bucket has no retention policy.")
        self.locked = True
        self.metageneration += 1

    def config(self):
        config = {
            "kind": "storage#bucket",
            "id": self.name,
            "name": self.name,
            "metageneration": str(self.metageneration),
            "versioning": {"enabled": self.versioning},
        }
        if self.retention is not None:
            policy = {"retentionPeriod": str(self.retention), "effectiveTime": iso(self.retention_since)}
            if self.locked:
                policy["isLocked"] = True
            config["retentionPolicy"] = policy
        return config

    def check_retention(self, key, obj):
        if self.retention and time.time() < obj.created + self.retention:
            until = iso(obj.created + self.retention)
            raise Refused(403, "AccessDenied", f"Object '{self.name}/{key}' is subject to bucket's retention policy or object retention and cannot be deleted or overwritten until {until}")

    def retire(self, key):
        """Takes the live object away: to the noncurrent ones, or for good."""
        obj = self.live[key]
        if self.versioning:
            self.noncurrent.setdefault(key, {})[obj.generation] = obj
        else:
            self.check_retention(key, obj)
        del self.live[key]

    def store(self, key, obj, generation):
        current = self.live.get(key)
        if generation is not None and int(generation) != (current.generation if current else 0):
            raise Refused(412, "PreconditionFailed", NOT_MET)
        if current:
            self.retire(key)
        self.live[key] = obj

    def find(self, key, generation):
        obj = self.live.get(key)
        if generation is not None and not (obj and str(obj.generation) == generation):
            obj = self.noncurrent.get(key, {}).get(int(generation))
        if obj is None:
            raise no_such_key()
        return obj

    def delete(self, key, generation):
        if generation is None:
            if key not in self.live:
                raise no_such_key()
            return self.retire(key)
        obj = self.find(key, generation)
        self.check_retention(key, obj)
        if self.live.get(key) is obj:
            del self.live[key]
        else:
            del self.noncurrent[key][obj.generation]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=None, kind="application/xml"):
        body = body.encode() if isinstance(body, str) else body
        headers = {"Content-Length": str(len(body)), **(headers or {})}
        if body:
            headers.setdefault("Content-Type", kind)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, status=200):
        self.answer(status, json.dumps(value), kind="application/json")

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        try:
            self.route(url.path, body)
        except Refused as refused:
            if url.path.startswith(JSON_API):
                reason = {"domain": "global", "reason": refused.code, "message": refused.message}
                error = {"code": refused.status, "message": refused.message, "errors": [reason]}
                self.answer_json({"error": error}, refused.status)
            else:
                text = f"<Error><Code>{refused.code}</Code><Message>{escape(refused.message)}</Message></Error>"
                self.answer(refused.status, XML + text)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = handle_request

    def route(self, path, body):
        if path == "/_fault":
            with LOCK:
                FAULTS.append(json.loads(body))
            return self.answer(200)
        self.inject_fault()
        if path.startswith(JSON_API):
            return self.json_api([unquote(part) for part in path[len(JSON_API):].split("/") if part], body)
        if path == "/":
            return self.answer(200, "ok", kind="text/plain")
        name, _, key = path[1:].partition("/")
        bucket = BUCKETS.get(unquote(name))
        if bucket is None:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist.")
        if not key:
            return self.list_uploads(bucket) if "uploads" in self.query else self.list_objects(bucket)
        return self.object_api(bucket, unquote(key), body)

    def inject_fault(self):
        with LOCK:
            for fault in FAULTS:
                if (
                    fault.get("times", 1) > 0
                    and fault.get("method", self.command) == self.command
                    and fault.get("contains", "") in self.path
                ):
                    fault["times"] = fault.get("times", 1) - 1
                    raise Refused(fault.get("status", 503), "ServiceUnavailable", "injected")

    # Buckets, through the JSON API.

    def json_api(self, rest, body):
        with LOCK:
            if not rest and self.command == "POST":
                config = json.loads(body)
                if config["name"] in BUCKETS:
                    raise Refused(409, "conflict", "Your previous request to create the named bucket succeeded and you already own it.")
                BUCKETS[config["name"]] = bucket = Bucket(config)
                return self.answer_json(bucket.config())
            if not rest:
                items = [bucket.config() for bucket in BUCKETS.values()]
                return self.answer_json({"kind": "storage#buckets", "items": items})
            bucket = BUCKETS.get(rest[0])
            if bucket is None:
                raise Refused(404, "notFound", "The specified bucket does not exist.")
            if rest[1:] == ["lockRetentionPolicy"] and self.command == "POST":
                if self.query.get("ifMetagenerationMatch") != str(bucket.metageneration):
                    raise Refused(412, "conditionNotMet", NOT_MET)
                bucket.lock_retention()
            elif rest[1:]:
                raise Refused(501, "notImplemented", "This stand-in does not have it.")
            elif self.command == "PATCH":
                bucket.update(json.loads(body))
            elif self.command == "DELETE":
                if bucket.live:
                    raise Refused(409, "conflict", "The bucket you tried to delete is not empty.")
                del BUCKETS[bucket.name]
                return self.answer(204)
            elif self.command != "GET":
                raise Refused(501, "notImplemented", "This stand-in does not have it.")
            return self.answer_json(bucket.config())

    # Lists.

    def list_objects(self, bucket):
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = max(self.query.get("start-after", ""), self.query.get("continuation-token", ""), key=str.encode)
        limit = min(int(self.query.get("max-keys", 1000)), 1000)
        objects, prefixes, last, more = [], [], "", False
        with LOCK:
            # In the order of the UTF-8 bytes, as Google sorts.
            for key in sorted(bucket.live, key=str.encode):
                if not key.startswith(prefix):
                    continue
                cut = key.find(delimiter, len(prefix)) if delimiter else -1
                entry = key[: cut + len(delimiter)] if cut >= 0 else key
                if entry.encode() <= after.encode() or (prefixes and prefixes[-1] == entry):
                    continue
                if len(objects) + len(prefixes) >= limit:
                    more = True
                    break
                last = entry
                if cut >= 0:
                    prefixes.append(entry)
                    continue
                obj = bucket.live[key]
                objects.append(
                    f"<Contents><Key>{escape(key)}</Key><Generation>{obj.generation}</Generation>"
                    f"<MetaGeneration>1</MetaGeneration><LastModified>{iso(obj.created)}</LastModified>"
                    f"<ETag>{escape(obj.etag)}</ETag><Size>{len(obj.body)}</Size></Contents>"
                )
        self.answer(200, "".join([
            XML,
            "<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>",
            f"<Name>{escape(bucket.name)}</Name><Prefix>{escape(prefix)}</Prefix>",
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>",
            f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else "",
            *objects,
            *(f"<CommonPrefixes><Prefix>{escape(entry)}</Prefix></CommonPrefixes>" for entry in prefixes),
            "</ListBucketResult>",
        ]))

    def list_uploads(self, bucket):
        prefix = self.query.get("prefix", "")
        with LOCK:
            uploads = [
                f"<Upload><Key>{escape(upload.key)}</Key><UploadId>{upload.id}</UploadId>"
                f"<Initiated>{iso(upload.created)}</Initiated></Upload>"
                for upload in sorted(UPLOADS.values(), key=lambda upload: (upload.key.encode(), upload.id))
                if upload.bucket is bucket and upload.key.startswith(prefix)
            ]
        self.answer(200, "".join([
            XML,
            "<ListMultipartUploadsResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>",
            f"<Bucket>{escape(bucket.name)}</Bucket><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>",
            *uploads,
            "</ListMultipartUploadsResult>",
        ]))

    # Objects.

    def object_api(self, bucket, key, body):
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and not re.fullmatch(r"\d+", wanted):
            raise Refused(400, "InvalidArgument", "Invalid argument.")
        if self.command == "POST" and "uploads" in self.query:
            self.create_upload(bucket, key)
        elif "uploadId" in self.query:
            self.upload_api(bucket, key, body, wanted)
        elif self.command == "PUT":
            self.put(bucket, key, body, wanted)
        elif self.command == "DELETE":
            with LOCK:
                bucket.delete(key, self.query.get("generation"))
            self.answer(204)
        elif self.command in ("GET", "HEAD"):
            with LOCK:
                obj = bucket.find(key, self.query.get("generation"))
            self.get(obj)
        else:
            raise Refused(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")

    def headers_to_keep(self):
        names = ((name.lower(), value) for name, value in self.headers.items())
        return {name: value for name, value in names if name in KEPT_HEADERS or name.startswith("x-goog-meta-")}

    def create_upload(self, bucket, key):
        upload = Upload(bucket, key, self.headers_to_keep())
        with LOCK:
            UPLOADS[upload.id] = upload
        self.answer(200, f"{XML}<InitiateMultipartUploadResult><Bucket>{escape(bucket.name)}</Bucket><Key>{escape(key)}</Key><UploadId>{upload.id}</UploadId></InitiateMultipartUploadResult>")

    def upload_api(self, bucket, key, body, generation):
        with LOCK:
            upload = UPLOADS.get(self.query["uploadId"])
            if upload is None or upload.bucket is not bucket or upload.key != key:
                raise Refused(404, "NoSuchUpload", "The requested upload was not found.")
            if self.command == "PUT":
                etag = md5_etag(body)
                upload.parts[int(self.query["partNumber"])] = (etag, body)
                return self.answer(200, headers={"ETag": etag})
            if self.command == "DELETE":
                del UPLOADS[upload.id]
                return self.answer(204)
            wanted = []
            for part in re.findall(r"<Part>(.*?)</Part>", body.decode(), re.S):
                number = int(re.search(r"<PartNumber>(\d+)</PartNumber>", part)[1])
                etag = re.search(r"<ETag>(.*?)</ETag>", part, re.S)[1].replace("&quot;", '"')
                wanted.append((number, etag))
            obj = Object(upload.body(wanted), upload.headers)
            bucket.store(key, obj, generation)
            del UPLOADS[upload.id]
        result = f"<CompleteMultipartUploadResult><Bucket>{escape(bucket.name)}</Bucket><Key>{escape(key)}</Key><ETag>{escape(obj.etag)}</ETag></CompleteMultipartUploadResult>"
        self.answer(200, XML + result, {"x-goog-generation": str(obj.generation)})

    def put(self, bucket, key, body, generation):
        source = self.headers.get("x-goog-copy-source")
        with LOCK:
            if source:
                source_bucket, _, source_key = source.lstrip("/").partition("/")
                if unquote(source_bucket) not in BUCKETS:
                    raise no_such_key()
                original = BUCKETS[unquote(source_bucket)].find(unquote(source_key), None)
                obj = Object(original.body, dict(original.headers))
            else:
                obj = Object(body, self.headers_to_keep())
            bucket.store(key, obj, generation)
        headers = {"ETag": obj.etag, "x-goog-generation": str(obj.generation), "x-goog-metageneration": "1"}
        result = f"{XML}<CopyObjectResult><ETag>{escape(obj.etag)}</ETag></CopyObjectResult>" if source else b""
        self.answer(200, result, headers)

    def get(self, obj):
        headers = {
            **{name if name.startswith("x-goog-") else name.title(): value for name, value in obj.headers.items()},
            "ETag": obj.etag,
            "Last-Modified": formatdate(obj.created, usegmt=True),
            "x-goog-generation": str(obj.generation),
            "Accept-Ranges": "bytes",
        }
        if not self.conditions_hold(obj):
            return self.answer(304, headers=headers)
        first, last = self.asked_range(len(obj.body))
        if first is None:
            return self.answer(200, obj.body, headers)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(obj.body)}"
        self.answer(206, obj.body[first : last + 1], headers)

    def conditions_hold(self, obj):
        """False: not modified. A condition that fails otherwise is refused."""

        def names(header):
            value = self.headers.get(header)
            return None if value is None else [etag.strip() for etag in value.split(",")]

        def when(header):
            value = self.headers.get(header)
            return None if value is None else parsedate_to_datetime(value).timestamp()

        match, none_match = names("If-Match"), names("If-None-Match")
        modified, unmodified = when("If-Modified-Since"), when("If-Unmodified-Since")
        if match and match != ["*"] and obj.etag not in match:
            raise Refused(412, "PreconditionFailed", NOT_MET)
        if unmodified is not None and not match and int(obj.created) > unmodified:
            raise Refused(412, "PreconditionFailed", NOT_MET)
        if none_match:
            return none_match != ["*"] and obj.etag not in none_match
        return modified is None or int(obj.created) > modified

    def asked_range(self, length):
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked or not (asked[1] or asked[2]):
            return None, None
        if asked[1]:
            first, last = int(asked[1]), min(int(asked[2] or length), length - 1)
        else:
            first, last = max(0, length - int(asked[2])), length - 1
        if first > last:
            raise Refused(416, "InvalidRange", "The requested range cannot be satisfied.")
        return first, last


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def make_bucket(spec):
    name, _, how = spec.partition(":")
    kind, _, seconds = how.partition("=")
    if kind not in ("", "versioned", "retained", "locked"):
        raise SystemExit(f"gcs_server.py: {spec}: not a kind of bucket")
    config = {"name": name, "versioning": {"enabled": kind == "versioned"}}
    if seconds:
        config["retentionPolicy"] = {"retentionPeriod": seconds}
    BUCKETS[name] = Bucket(config)
    if kind == "locked":
        BUCKETS[name].lock_retention()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=4443)
    arguments.add_argument("buckets", nargs="*", metavar="NAME[:HOW]")
    options = arguments.parse_args()
    for bucket_spec in options.buckets:
        make_bucket(bucket_spec)
    Server(("127.0.0.1", options.port), Handler).serve_forever()
