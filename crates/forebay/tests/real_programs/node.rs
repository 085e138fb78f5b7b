//! Node.js: some of its calls go by libc's functions, some by `syscall`, some by threads.

use crate::PROJECT;
use crate::common::{case, need};

/// The synchronous functions of its module `fs`, and promises.
const CALLS: &str = r#"
const fs = require('fs'), path = require('path');
const tell = (...all) => console.log(...all);
const code = act => { try { act(); return 'done' } catch (e) { return e.code } };
tell(fs.readdirSync('project').sort(), fs.statSync('project/src/text').size, code(() => fs.statSync('none')));
fs.mkdirSync('a/b/c', {recursive: true});
fs.writeFileSync('a/b/x', 'hello');
fs.appendFileSync('a/b/x', ' world');
tell(fs.readFileSync('a/b/x', 'utf8'), fs.statSync('a/b/x').size, fs.existsSync('a/none'));
fs.renameSync('a/b/x', 'a/y');
fs.symlinkSync('y', 'a/l');
fs.linkSync('a/y', 'a/h');
tell(path.basename(fs.realpathSync('a/l')), fs.lstatSync('a/l').isSymbolicLink(), fs.readlinkSync('a/l'));
tell(fs.statSync('a/h').ino === fs.statSync('a/y').ino, fs.statSync('a/y').nlink);
fs.copyFileSync('a/y', 'a/z');
fs.cpSync('project/src/deep', 'copy', {recursive: true});
fs.chmodSync('a/z', 0o640);
fs.utimesSync('a/z', 1000, 2000);
tell((fs.statSync('a/z').mode & 0o777).toString(8), fs.statSync('a/z').mtimeMs);
fs.truncateSync('a/z', 3);
tell(code(() => fs.mkdirSync('a')), code(() => fs.rmdirSync('a')), code(() => fs.accessSync('a/none')));
const made = fs.mkdtempSync('made-');
fs.rmdirSync(made);
const open = fs.openSync('a/log', 'a+');
for (let n = 0; n < 100; n++) fs.writeSync(open, `line ${n}\n`);
fs.fsyncSync(open);
fs.closeSync(open);
fs.rmSync('a/b', {recursive: true});
fs.writeFileSync('module.js', 'module.exports = require("./project/other.js") + 1');
fs.writeFileSync('project/other.js', 'module.exports = 41');
tell(require(path.resolve('module.js')));
(async () => {
    const { promises: later } = fs;
    await Promise.all([...Array(50).keys()].map(n => later.writeFile(`a/p${n}`, `promise ${n}`)));
    const texts = await Promise.all([...Array(50).keys()].map(n => later.readFile(`a/p${n}`, 'utf8')));
    tell(texts.every((text, n) => text === `promise ${n}`), (await later.readdir('a')).length);
    for await (const entry of await later.opendir('copy')) if (entry.isDirectory()) tell('directory', entry.name);
    fs.createReadStream('a/log').pipe(fs.createWriteStream('a/piped')).on('finish', () => {
        tell(fs.readFileSync('a/piped', 'utf8') === fs.readFileSync('a/log', 'utf8'));
        require('child_process').execFileSync('cat', ['a/y'], {stdio: 'inherit'});
    });
})();
"#;

#[test]
fn node_sees_one_tree_by_all_of_its_calls() {
    need!("node");
    let script =
        format!("cat > \"$OUTSIDE/calls.js\" <<'END'\n{CALLS}\nEND\nnode \"$OUTSIDE/calls.js\"");
    case!().start(PROJECT).same(&script);
}
