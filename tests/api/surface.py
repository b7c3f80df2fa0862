#!/usr/bin/env python3
"""What of this crate callers may hold on to, read from rustdoc's JSON.

    surface.py JSON            print the types of other crates that the public API names
    surface.py JSON EXPECTED   compare them with the file EXPECTED, and check that each name
                               stands at one path besides the crate's root

The standard library is not listed. Blanket and automatic implementations are not followed.
"""

import json
import sys

STANDARD = {"std", "core", "alloc"}


class Surface:
    def __init__(self, doc):
        self.index = doc["index"]
        self.names = doc["paths"]
        self.crates = doc["external_crates"]
        self.root = str(doc["root"])
        self.paths = {}  # item -> its public paths
        self.foreign = {}  # type of another crate -> one item that names it
        self.walk_module(self.root, [], set())

    def walk_module(self, module, path, above):
        if module in above:
            return
        for item in self.index[module]["inner"]["module"]["items"]:
            self.walk(str(item), path, above | {module})

    def walk(self, ident, path, above):
        item = self.index.get(ident)
        if item is None or item["visibility"] != "public":
            return
        kind, inner = next(iter(item["inner"].items()))
        if kind == "use":
            target = str(inner["id"]) if inner["id"] is not None else None
            if target not in self.index:
                # A whole crate, or an item of one, is re-exported.
                return
            kind = next(iter(self.index[target]["inner"]))
            if inner["is_glob"]:
                self.walk_module(target, path, above)
            elif kind == "module":
                # At the root it is a shorter name of what stands elsewhere.
                if path:
                    self.walk_module(target, [*path, inner["name"]], above)
            else:
                self.found(target, [*path, inner["name"]])
        elif kind == "module":
            self.walk_module(ident, [*path, item["name"]], above)
        else:
            self.found(ident, [*path, item["name"]])

    def found(self, ident, path):
        known = self.paths.setdefault(ident, [])
        path = "::".join(path)
        if path in known:
            return
        known.append(path)
        if len(known) == 1:
            self.types_of(self.index[ident], path)

    def types_of(self, item, where):
        """Notes the types of other crates in all that `item` shows."""
        for kind, inner in item["inner"].items():
            if kind in ("struct", "enum", "union", "trait"):
                self.types_in(inner.get("generics"), where)
                self.types_in(inner.get("bounds"), where)
                for impl in inner.get("impls", []):
                    self.types_of_impl(str(impl), where)
                for member in self.members(kind, inner):
                    self.types_of_member(str(member), where)
            else:
                self.types_in(inner, where)

    @staticmethod
    def members(kind, inner):
        if kind == "trait":
            return inner["items"]
        if kind == "enum":
            return inner["variants"]
        shape = inner.get("kind")
        if isinstance(shape, dict):
            if "plain" in shape:
                return shape["plain"]["fields"]
            if "tuple" in shape:
                return [field for field in shape["tuple"] if field is not None]
        return []

    def types_of_member(self, ident, where):
        item = self.index.get(ident)
        if item is None or item["visibility"] not in ("public", "default"):
            return
        for kind, inner in item["inner"].items():
            if kind == "variant":
                shape = inner["kind"]
                fields = []
                if isinstance(shape, dict):
                    fields = shape.get("tuple") or shape.get("struct", {}).get("fields", [])
                for field in fields:
                    if field is not None:
                        self.types_of_member(str(field), where)
            else:
                self.types_in(inner, f"{where}::{item['name']}")

    def types_of_impl(self, ident, where):
        item = self.index.get(ident)
        if item is None:
            return
        impl = item["inner"]["impl"]
        if impl["is_synthetic"] or impl["blanket_impl"] is not None:
            return
        trait = impl["trait"]
        if trait is not None:
            self.types_in({"resolved_path": trait}, where)
        for member in impl["items"]:
            entry = self.index.get(str(member))
            if entry is None:
                continue
            if trait is None:
                self.types_of_member(str(member), where)
            elif "assoc_type" in entry["inner"]:
                self.types_in(entry["inner"], where)

    def types_in(self, node, where):
        if isinstance(node, list):
            for child in node:
                self.types_in(child, where)
        elif isinstance(node, dict):
            for key, child in node.items():
                if key in ("resolved_path", "trait", "trait_") and isinstance(child, dict):
                    self.name(child, where)
                self.types_in(child, where)

    def name(self, reference, where):
        entry = self.names.get(str(reference.get("id")))
        if entry is None or entry["crate_id"] == 0:
            return
        crate = self.crates[str(entry["crate_id"])]["name"]
        if crate not in STANDARD:
            # Where a crate defines it, not where it is re-exported: the last word is what users write.
            self.foreign.setdefault(f"{crate} {entry['path'][-1]}", where)

    def at_two_paths(self):
        """Names that stand at two paths besides the crate's root."""
        for paths in self.paths.values():
            deep = [path for path in paths if path.count("::") > 0]
            if len(deep) > 1:
                yield " = ".join(sorted(deep))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        surface = Surface(json.load(file))
    if len(sys.argv) == 2:
        for name, where in sorted(surface.foreign.items()):
            print(f"{name}  # {where}")
        return 0
    with open(sys.argv[2], encoding="utf-8") as file:
        expected = {line.split("#")[0].strip() for line in file} - {""}
    faults = [
        f"new in the API: {name} (in {surface.foreign[name]})"
        for name in sorted(surface.foreign.keys() - expected)
    ]
    faults += [f"no longer in the API: {name}" for name in sorted(expected - surface.foreign.keys())]
    faults += [f"one name at two paths: {paths}" for paths in sorted(surface.at_two_paths())]
    print("\n".join(faults) or f"{len(surface.paths)} names, {len(expected)} types of other crates")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
