//! Reads source files: which modules they have, which names stand in those, and which paths they
//! use.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, TokenStream, TokenTree, token_stream};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, ImplItemFn, Item, ItemMod, ItemUse, Lit, Macro, Meta, MetaList,
    Token, UseTree, Visibility,
};

/// The path of a module or of a name, from `src/` on.
pub(crate) type Path = Vec<String>;

/// A path as it is written in a module. One that begins with `crate`, `super` or `self` is written
/// out from `src/` on; any other may begin with a name of that module, or of another crate.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) module: Option<Path>,
    pub(crate) path: Path,
    /// Stands in code that only tests have.
    pub(crate) in_test: bool,
    /// `pub use`: names something for others.
    is_re_export: bool,
}

/// What a module names.
#[derive(Debug, Default)]
struct Scope {
    items: BTreeSet<String>,
    imports: BTreeMap<String, Use>,
    globs: Vec<Use>,
}

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Below `src/`, with `/`.
    pub(crate) path: String,
    pub(crate) lines: usize,
    pub(crate) uses: Vec<Use>,
    /// Its own module, and those that stand in it.
    scopes: BTreeMap<Path, Scope>,
    /// Files that only tests have, as modules.
    test_modules: Vec<Path>,
    /// The files that `#[path]` names.
    pub(crate) elsewhere: Vec<String>,
    module: Path,
    /// How many words of a path stand for `crate`.
    root: usize,
    /// Is a file that only tests have, once that is known.
    pub(crate) in_test: bool,
}

fn module_of(path: &str) -> Path {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Path = path.split('/').map(str::to_owned).collect();
    if matches!(path, "lib" | "main") || path.ends_with("/mod") || path.ends_with("/main") {
        module.pop();
    }
    module
}

impl Source {
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let module = module_of(path);
        // Each program is a crate of its own.
        let root = if path.starts_with("bin/") { 2 } else { 0 };
        let mut source = Self {
            path: path.to_owned(),
            lines: text.lines().count(),
            uses: Vec::new(),
            scopes: BTreeMap::from([(module.clone(), Scope::default())]),
            test_modules: Vec::new(),
            elsewhere: Vec::new(),
            module,
            root,
            in_test: false,
        };
        let file = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        source.visit_file(&file);
        source
    }

    /// `None` for a word that begins no path, such as `self` in a method.
    fn used(&self, path: &[String]) -> Option<Use> {
        let words = path.strip_suffix(&["self".to_owned()]).unwrap_or(path);
        let mut module = self.module.clone();
        let mut rest = words;
        while let [first, after @ ..] = rest {
            match first.as_str() {
                "crate" => module.truncate(self.root),
                "super" => drop(module.pop()),
                "self" => {}
                _ => break,
            }
            rest = after;
        }
        if path.len() == 1 && rest.is_empty() {
            return None;
        }
        let is_anchored = rest.len() < words.len();
        let (module, path) = if is_anchored {
            (None, [&module, rest].concat())
        } else {
            (Some(module), words.to_vec())
        };
        Some(Use {
            module,
            path,
            in_test: self.in_test,
            is_re_export: false,
        })
    }

    fn note(&mut self, path: &[String]) {
        self.uses.extend(self.used(path));
    }

    fn import(&mut self, tree: &UseTree, mut path: Path, is_re_export: bool) {
        let (word, name) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.import(&tree.tree, path, is_re_export);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone(), is_re_export);
                }
                return;
            }
            UseTree::Name(tree) => (tree.ident.to_string(), None),
            UseTree::Rename(tree) => (tree.ident.to_string(), Some(tree.rename.to_string())),
            UseTree::Glob(_) => ("self".to_owned(), None),
        };
        let name = name.or_else(|| {
            let mut words = [&path[..], std::slice::from_ref(&word)]
                .concat()
                .into_iter();
            words.rfind(|word| word != "self")
        });
        path.push(word);
        let Some(mut used) = self.used(&path) else {
            return;
        };
        used.is_re_export = is_re_export;
        let scope = self.scopes.entry(self.module.clone()).or_default();
        if matches!(tree, UseTree::Glob(_)) {
            scope.globs.push(used.clone());
        } else if let Some(name) = name {
            scope.imports.insert(name, used.clone());
        }
        self.uses.push(used);
    }

    /// `#[path = "…"] mod name;`
    fn elsewhere(&mut self, name: &Ident, file: &str) {
        let mut path: Path = self.path.split('/').map(str::to_owned).collect();
        path.pop();
        for word in file.split('/') {
            match word {
                ".." => drop(path.pop()),
                word => path.push(word.to_owned()),
            }
        }
        let path = path.join("/");
        let module = Use {
            module: None,
            path: module_of(&path),
            in_test: self.in_test,
            is_re_export: true,
        };
        let scope = self.scopes.entry(self.module.clone()).or_default();
        scope.imports.insert(name.to_string(), module);
        self.elsewhere.push(path);
    }

    /// What a macro or an attribute is given: every word that may begin a path.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) => self.follow(word.to_string(), &mut tokens),
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => {}
            }
        }
    }

    fn follow(&mut self, word: String, tokens: &mut token_stream::IntoIter) {
        let is_sign = |token: Option<TokenTree>, wanted| matches!(token, Some(TokenTree::Punct(sign)) if sign.as_char() == wanted);
        let mut path = vec![word];
        loop {
            let mut ahead = tokens.clone();
            if !is_sign(ahead.next(), ':') || !is_sign(ahead.next(), ':') {
                break;
            }
            match ahead.next() {
                Some(TokenTree::Ident(word)) => path.push(word.to_string()),
                Some(TokenTree::Group(group)) => {
                    let trees = Punctuated::<UseTree, Token![,]>::parse_terminated;
                    for tree in trees.parse2(group.stream()).into_iter().flatten() {
                        self.import(&tree, path.clone(), false);
                    }
                    *tokens = ahead;
                    return;
                }
                _ => break,
            }
            *tokens = ahead;
        }
        self.note(&path);
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, Meta::List(list)
                if ["test", "all (test"].iter().any(|start| list.tokens.to_string().starts_with(start)))
    })
}

/// The name that an item has in its module, and its attributes.
fn described(item: &Item) -> (Option<&Ident>, &[Attribute]) {
    match item {
        Item::Const(item) => (Some(&item.ident), &item.attrs),
        Item::Enum(item) => (Some(&item.ident), &item.attrs),
        Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
        Item::Impl(item) => (None, &item.attrs),
        Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
        Item::Mod(item) => (None, &item.attrs),
        Item::Static(item) => (Some(&item.ident), &item.attrs),
        Item::Struct(item) => (Some(&item.ident), &item.attrs),
        Item::Trait(item) => (Some(&item.ident), &item.attrs),
        Item::Type(item) => (Some(&item.ident), &item.attrs),
        Item::Use(item) => (None, &item.attrs),
        _ => (None, &[]),
    }
}

impl Visit<'_> for Source {
    fn visit_item(&mut self, item: &Item) {
        let (name, attributes) = described(item);
        let module = self.module.clone();
        let scope = self.scopes.entry(module).or_default();
        scope.items.extend(name.map(ToString::to_string));
        let was = self.in_test;
        self.in_test |= is_of_tests(attributes);
        visit::visit_item(self, item);
        self.in_test = was;
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        for attribute in &item.attrs {
            if let Meta::NameValue(meta) = &attribute.meta
                && meta.path.is_ident("path")
                && let Expr::Lit(ExprLit {
                    lit: Lit::Str(file),
                    ..
                }) = &meta.value
            {
                self.elsewhere(&item.ident, &file.value());
            }
        }
        self.module.push(item.ident.to_string());
        let module = self.module.clone();
        if item.content.is_some() {
            self.scopes.entry(module).or_default();
        } else if self.in_test {
            self.test_modules.push(module);
        }
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        if item.leading_colon.is_none() {
            let is_re_export = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, Vec::new(), is_re_export);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        let was = self.in_test;
        self.in_test |= is_of_tests(&item.attrs);
        visit::visit_impl_item_fn(self, item);
        self.in_test = was;
    }

    // `pub(in crate::…)` uses nothing.
    fn visit_visibility(&mut self, _: &Visibility) {}

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            let words = path.segments.iter().map(|word| word.ident.to_string());
            self.note(&words.collect::<Path>());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, used: &Macro) {
        self.visit_path(&used.path);
        self.tokens(used.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &MetaList) {
        self.tokens(list.tokens.clone());
    }
}

/// All files.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) sources: Vec<Source>,
    /// Which file each module is in.
    files: BTreeMap<Path, usize>,
}

impl Tree {
    pub(crate) fn new(mut sources: Vec<Source>) -> Self {
        let tests: Vec<_> = sources
            .iter()
            .flat_map(|source| source.test_modules.clone())
            .collect();
        for source in &mut sources {
            source.in_test = tests.iter().any(|test| source.module.starts_with(test));
        }
        let modules = |(file, source): (usize, &Source)| {
            let modules: Vec<_> = source.scopes.keys().cloned().collect();
            modules.into_iter().map(move |module| (module, file))
        };
        let files = sources.iter().enumerate().flat_map(modules).collect();
        Self { sources, files }
    }

    /// The file that has what is used, where it is one of these.
    fn find(&self, used: &Use) -> Option<usize> {
        let found = self.walk(used, &[], 10);
        if used.module.is_some() {
            // A single word is no module, but a variable of the same name.
            let (file, is_module) = found?;
            return (!is_module || used.path.len() > 1).then_some(file);
        }
        // What a macro makes is nowhere to be seen: it is in the module that is named last.
        let mut modules = (0..=used.path.len()).rev().map(|words| &used.path[..words]);
        found
            .map(|(file, _)| file)
            .or_else(|| modules.find_map(|module| self.files.get(module).copied()))
    }

    /// Follows a path, through what modules have imported. Answers with the file, and whether it
    /// is a module that the path ends with.
    fn walk(&self, used: &Use, more: &[String], most: usize) -> Option<(usize, bool)> {
        let mut at = used.module.clone().unwrap_or_default();
        let words = [&used.path, more].concat();
        for (index, word) in words.iter().enumerate() {
            let file = self.files.get(&at).copied();
            let scope = file.map(|file| &self.sources[file].scopes[&at]);
            at.push(word.clone());
            if self.files.contains_key(&at) {
                continue;
            }
            let scope = scope?;
            if scope.items.contains(word) {
                return Some((file?, false));
            }
            let most = most.checked_sub(1)?;
            let import = scope.imports.get(word);
            let imported = import.and_then(|import| self.walk(import, &words[index + 1..], most));
            let mut globs = scope.globs.iter();
            return imported
                .or_else(|| globs.find_map(|glob| self.walk(glob, &words[index..], most)));
        }
        Some((*self.files.get(&at)?, true))
    }

    /// Which files each file uses, but for what only tests use, what is only named for others, and
    /// the modules that it is a part of.
    fn edges(&self) -> Vec<BTreeSet<usize>> {
        self.sources
            .iter()
            .map(|source| {
                if source.in_test {
                    return BTreeSet::new();
                }
                let uses = source
                    .uses
                    .iter()
                    .filter(|used| !used.in_test && !used.is_re_export);
                let used = uses.filter_map(|used| self.find(used));
                used.filter(|used| !source.module.starts_with(&self.sources[*used].module))
                    .collect()
            })
            .collect()
    }

    /// Groups of files each of which uses every other of its group, directly or through others; and
    /// who uses whom in there.
    pub(crate) fn circles(&self) -> BTreeMap<Vec<&str>, Vec<String>> {
        let edges = self.edges();
        let reached: Vec<BTreeSet<usize>> = (0..edges.len())
            .map(|file| {
                let mut reached = BTreeSet::new();
                let mut left: Vec<_> = edges[file].iter().copied().collect();
                while let Some(next) = left.pop() {
                    if reached.insert(next) {
                        left.extend(&edges[next]);
                    }
                }
                reached
            })
            .collect();
        let name = |file: &usize| self.sources[*file].path.as_str();
        let mut circles = BTreeMap::new();
        for (file, used) in edges.iter().enumerate() {
            let is_in_circle = |other: &&usize| reached[**other].contains(&file);
            let circle: Vec<_> = reached[file]
                .iter()
                .filter(is_in_circle)
                .map(name)
                .collect();
            if !circle.is_empty() {
                let used = used.iter().filter(is_in_circle);
                let uses = used.map(|used| format!("{} uses {}", name(&file), name(used)));
                circles.entry(circle).or_insert_with(Vec::new).extend(uses);
            }
        }
        circles
    }
}
