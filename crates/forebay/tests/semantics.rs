//! Each promise in `docs/SEMANTICS.md` names the test that shows it. This test checks that those tests exist.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every `file::test` in back quotes: the part before `::`, which is a path or a part of one, and the test's name.
fn cited(text: &str) -> Vec<(String, String)> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|quoted| quoted.split_once("::"))
        .map(|(file, test)| (file.to_owned(), test.to_owned()))
        .collect()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The tests of one source file: the functions after `#[test]`.
fn tests_in(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        match line.strip_prefix("fn ") {
            _ if line == "#[test]" => marked = true,
            Some(rest) if marked => {
                names.extend(rest.split('(').next());
                marked = false;
            }
            _ => {}
        }
    }
    names
}

fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    rust_files(&repository().join("crates"), &mut files);
    rust_files(&repository().join("benches"), &mut files);
    files
}

/// A whole source file shows nothing: a promise names the test in it.
#[test]
fn no_promise_names_a_source_file_without_a_test() {
    let text = fs::read_to_string(repository().join("docs/SEMANTICS.md")).unwrap();
    let files = sources();
    let is_source = |quoted: &&str| {
        let file = Path::new(quoted);
        quoted.contains('/') && files.iter().any(|f| f.with_extension("").ends_with(file))
    };
    let named: Vec<_> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(is_source)
        .collect();
    assert!(named.is_empty(), "{named:?}");
}

#[test]
fn every_test_that_a_promise_names_exists() {
    let text = fs::read_to_string(repository().join("docs/SEMANTICS.md")).unwrap();
    let citations = cited(&text);
    assert!(
        citations.len() > 20,
        "only {} tests are named",
        citations.len()
    );
    let files = sources();
    let missing: Vec<_> = citations
        .iter()
        .filter(|(file, test)| {
            !files.iter().any(|path| {
                path.with_extension("").ends_with(file)
                    && tests_in(&fs::read_to_string(path).unwrap()).contains(&test.as_str())
            })
        })
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn only_functions_under_a_test_attribute_count() {
    let source = "fn helper() {}\n#[test]\nfn shown() {}\nfn other() {}";
    assert_eq!(tests_in(source), ["shown"]);
    assert_eq!(
        cited("a `b::c` d `e` f `x/y::z`"),
        [("b".into(), "c".into()), ("x/y".into(), "z".into())]
    );
}
