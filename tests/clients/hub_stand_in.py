"""A stand-in of the Hugging Face Hub's interface: models of files in memory, one server for what is asked and one, on another port, for contents."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse


def sha1_of_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Model:
    """Files of a model by their paths; large ones are kept as LFS does, elsewhere."""

    def __init__(self, files, large=1 << 16):
        self.files = files
        self.large = {path for path, content in files.items() if len(content) >= large}
        self.commit = hashlib.sha1(json.dumps(sorted(sha1_of_blob(content) + path for path, content in files.items())).encode()).hexdigest()

    def listing(self):
        siblings = []
        for path, content in self.files.items():
            sibling = {"rfilename": path, "size": len(content), "blobId": sha1_of_blob(content)}
            if path in self.large:
                sibling["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            siblings.append(sibling)
        return {"id": "", "sha": self.commit, "siblings": siblings, "private": False, "tags": []}

    def tree(self):
        """The other listing, which the Hub's Python library asks for."""
        entries = []
        for sibling in self.listing()["siblings"]:
            entry = {"type": "file", "path": sibling["rfilename"], "size": sibling["size"], "oid": sibling["blobId"]}
            if "lfs" in sibling:
                entry["lfs"] = {"oid": sibling["lfs"]["sha256"], "size": sibling["size"], "pointerSize": 134}
            entries.append(entry)
        return entries


class StandIn:
    """What is asked, as (server, path, headers), is kept in `asked`. `trouble`, called for each request with the server's name, the path and how often
    it was asked, may answer with a status, (status, headers), or the number of bytes after which a connection is cut."""

    def __init__(self, models, token=None):
        self.models, self.token = models, token
        self.asked, self.trouble, self.change_listing = [], None, None
        self.slow = threading.Event()
        self.slow.set()
        self.servers = {}
        for name in ["hub", "contents"]:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self, name))
            server.handle_error = lambda *_: None  # whoever asked has gone
            server.daemon_threads = True
            self.servers[name] = server
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def url(self, name="hub"):
        return f"http://127.0.0.1:{self.servers[name].server_address[1]}"

    def count(self, path):
        return sum(path in asked for _, asked, _ in self.asked)

    def end(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()


def handler_of(stand_in, name):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.do_GET()

        def refuse(self, status, headers=()):
            self.send_response(status)
            for field in headers:
                self.send_header(*field)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            path = urllib.parse.unquote(self.path.split("?")[0])
            trouble = stand_in.trouble(name, path, stand_in.count(path)) if stand_in.trouble else None
            stand_in.asked.append((name, path, dict(self.headers)))
            cut = None
            if isinstance(trouble, tuple):
                return self.refuse(*trouble)
            if trouble is not None and trouble in range(400, 600):
                return self.refuse(trouble)
            if trouble is not None:
                cut = trouble
            if name == "contents":
                return self.send_content(path, cut)
            if stand_in.token and self.headers.get("Authorization") != f"Bearer {stand_in.token}":
                return self.refuse(401, [("X-Error-Code", "GatedRepo")])
            return self.answer(path, cut)

        def answer(self, path, cut):
            asked = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
            if asked:
                model = stand_in.models.get(asked[1])
                if model is None:
                    return self.refuse(404, [("X-Error-Code", "RepoNotFound")])
                if asked[2] not in ("main", model.commit):
                    return self.refuse(404, [("X-Error-Code", "RevisionNotFound")])
                listing = model.listing()
                listing["id"] = asked[1]
                if stand_in.change_listing:
                    stand_in.change_listing(listing)
                return self.send(json.dumps(listing).encode(), [("Content-Type", "application/json")], cut)
            asked = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", path)
            if asked:
                return self.send(json.dumps(stand_in.models[asked[1]].tree()).encode(), [("Content-Type", "application/json")], cut)
            asked = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
            model = stand_in.models.get(asked[1]) if asked else None
            if model is None or asked[2] not in ("main", model.commit) or asked[3] not in model.files:
                return self.refuse(404, [("X-Error-Code", "EntryNotFound")])
            content, file = model.files[asked[3]], asked[3]
            fields = [("X-Repo-Commit", model.commit), ("Accept-Ranges", "bytes")]
            if file not in model.large:
                return self.send(content, [*fields, ("ETag", f'"{sha1_of_blob(content)}"')], cut)
            digest = hashlib.sha256(content).hexdigest()
            fields += [("X-Linked-Etag", f'"{digest}"'), ("X-Linked-Size", str(len(content)))]
            return self.refuse(302, [*fields, ("Location", f"{stand_in.url('contents')}/{asked[1]}/{file}?signed=1")])

        def send_content(self, path, cut):
            _, owner, model, file = path.split("/", 3)
            self.send(stand_in.models[f"{owner}/{model}"].files[file], [("ETag", '"of-the-store"')], cut)

        def send(self, content, fields, cut):
            begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            first = int(begin[1]) if begin else 0
            self.send_response(206 if begin else 200)
            for field in fields:
                self.send_header(*field)
            if begin:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            if self.command == "HEAD":
                return
            part = content[first:] if cut is None else content[first:first + cut]
            half = len(part) // 2
            self.wfile.write(part[:half])
            if name == "contents":
                stand_in.slow.wait(30)
            self.wfile.write(part[half:])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)

    return Handler
