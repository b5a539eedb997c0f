//! The command line that the Java programs have, and `-Dname=value` for what is a JVM property there.
//!
//! ```text
//! -c FILE      settings file          -n ADDR;ADDR   name servers
//! -p           print all settings     -m             print the important ones
//! -Dname=value  a Java system property such as rocketmq.namesrv.addr or rocketmq.remoting.version
//! -h, -V       help, version
//! ```
//!
//! Values may follow as their own argument, behind `=`, or (short form) directly. Priority of settings, low to
//! high: default, environment and system property, file, command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Properties;

/// Where the settings of TLS are when nothing says otherwise.
const TLS_FILE: &str = "/etc/rocketmq/tls.properties";

/// A switch of one program.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Name without the two dashes.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
}

/// What a program is called and can do.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name of the executable.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Version printed by `-V`.
    pub version: &'static str,
    /// Switches of its own.
    pub flags: &'static [Flag],
}

/// What the command line said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `-c`: settings file.
    pub config: Option<PathBuf>,
    /// `-n`: name servers.
    pub namesrv: Option<String>,
    /// `-p`: print all settings and end.
    pub print_all: bool,
    /// `-m`: print the important settings and end.
    pub print_important: bool,
    /// `-Dname=value`.
    pub defines: BTreeMap<String, String>,
    /// Switches of the program that were given, without dashes.
    pub flags: Vec<String>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Go on with these options.
    Run(Options),
    /// Print this and exit 0.
    Print(String),
}

/// A command line that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {program} -h lists all options")]
pub struct OptionsError {
    what: String,
    program: &'static str,
}

impl Options {
    /// Reads the arguments, without the program's own name.
    ///
    /// # Errors
    /// An unknown option or a missing value.
    pub fn parse<I>(program: &Program, args: I) -> Result<Action, OptionsError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut options = Self::default();
        let mut args = args.into_iter().map(Into::into);
        let fail = |what: String| OptionsError {
            what,
            program: program.name,
        };
        while let Some(arg) = args.next() {
            let (name, mut inline) = cut(&arg);
            let mut value = || {
                let value = inline.take().map(str::to_owned).or_else(|| args.next());
                value.ok_or_else(|| fail(format!("option {name} needs a value")))
            };
            match name {
                "-c" | "--configFile" => options.config = Some(value()?.into()),
                "-n" | "--namesrvAddr" => options.namesrv = Some(value()?),
                "-D" => {
                    let define = value()?;
                    let (key, value) = define.split_once('=').unwrap_or((&define, ""));
                    if key.is_empty() {
                        return Err(fail(format!("'{arg}' names no property; write -Dname=value")));
                    }
                    options.defines.insert(key.to_owned(), value.to_owned());
                }
                "-p" | "--printConfigItem" => options.print_all = true,
                "-m" | "--printImportantConfig" => options.print_important = true,
                "-h" | "--help" => return Ok(Action::Print(help(program))),
                "-V" | "--version" => {
                    return Ok(Action::Print(format!("{} {}", program.name, program.version)));
                }
                _ => {
                    let flag = name
                        .strip_prefix("--")
                        .filter(|n| program.flags.iter().any(|f| f.name == *n));
                    let Some(flag) = flag else {
                        return Err(fail(format!("unknown option '{arg}'")));
                    };
                    options.flags.push(flag.to_owned());
                }
            }
        }
        Ok(Action::Run(options))
    }

    /// Whether a switch of the program was given.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.iter().any(|f| f == name)
    }

    /// A system property.
    pub fn define(&self, name: &str) -> Option<&str> {
        self.defines.get(name).map(String::as_str)
    }

    /// Name servers from property `rocketmq.namesrv.addr`, else from `env` (the value of NAMESRV_ADDR): what
    /// holds when neither file nor `-n` says otherwise.
    pub fn default_namesrv(&self, env: Option<String>) -> Option<String> {
        self.define("rocketmq.namesrv.addr")
            .map(str::to_owned)
            .or(env)
            .filter(|list| !list.trim().is_empty())
    }

    /// Everything said about TLS, under Java's names: `-Dtls.…`, and over it the file that `-Dtls.config.file`
    /// names (default /etc/rocketmq/tls.properties, which need not exist).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load_tls(&self) -> std::io::Result<Properties> {
        let mut all = Properties::new();
        let given = self.defines.iter().filter(|(key, _)| key.starts_with("tls."));
        given.for_each(|(key, value)| all.set(key.as_str(), value.as_str()));
        let file = match self.define("tls.config.file") {
            Some(file) => Properties::load(Path::new(file))?,
            None if Path::new(TLS_FILE).exists() => Properties::load(Path::new(TLS_FILE))?,
            None => return Ok(all),
        };
        file.iter().for_each(|(key, value)| all.set(key, value));
        Ok(all)
    }

    /// The file's properties, or none without `-c`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load_config(&self) -> std::io::Result<Properties> {
        self.config
            .as_deref()
            .map_or_else(|| Ok(Properties::new()), Properties::load)
    }
}

/// Cuts an argument into option and the value that stands in it.
fn cut(arg: &str) -> (&str, Option<&str>) {
    if arg.starts_with("--") {
        return arg
            .split_once('=')
            .map_or((arg, None), |(name, value)| (name, Some(value)));
    }
    match arg.get(..2) {
        Some(name @ ("-c" | "-n" | "-D")) if arg.len() > 2 => {
            let value = &arg[2..];
            (
                name,
                Some(if name == "-D" {
                    value
                } else {
                    value.strip_prefix('=').unwrap_or(value)
                }),
            )
        }
        _ => (arg, None),
    }
}

fn help(program: &Program) -> String {
    let mut text = format!("{}: {}\n\nOptions:\n", program.name, program.about);
    for (option, what) in [
        ("-c, --configFile FILE", "settings file, Java properties"),
        (
            "-n, --namesrvAddr LIST",
            "name servers, host:port with ; between them (or environment NAMESRV_ADDR)",
        ),
        ("-p, --printConfigItem", "print all settings and exit"),
        (
            "-m, --printImportantConfig",
            "print the important settings and exit",
        ),
        ("-Dname=value", "what is a system property of the Java programs"),
        ("-h, --help", "print this and exit"),
        ("-V, --version", "print the version and exit"),
    ] {
        text.push_str(&format_line(option, what));
    }
    for flag in program.flags {
        text.push_str(&format_line(&format!("--{}", flag.name), flag.help));
    }
    text
}

fn format_line(option: &str, what: &str) -> String {
    format!("  {option:<28}{what}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        name: "prog",
        about: "a test",
        version: "1.2.3",
        flags: &[Flag {
            name: "with-namesrv",
            help: "start one here",
        }],
    };

    fn run(args: &[&str]) -> Options {
        match Options::parse(&PROGRAM, args.iter().copied()).unwrap() {
            Action::Run(options) => options,
            Action::Print(text) => panic!("printed {text}"),
        }
    }

    #[test]
    fn values_in_all_forms() {
        for args in [
            &["-c", "f", "-n", "a:1;b:2"][..],
            &["-cf", "-n=a:1;b:2"],
            &["--configFile=f", "--namesrvAddr", "a:1;b:2"],
        ] {
            let options = run(args);
            assert_eq!(options.config, Some(PathBuf::from("f")), "{args:?}");
            assert_eq!(options.namesrv.as_deref(), Some("a:1;b:2"), "{args:?}");
        }
    }

    #[test]
    fn defines_and_switches() {
        let options = run(&[
            "-Drocketmq.namesrv.addr=x:1",
            "-Dempty",
            "-D",
            "a=b=c",
            "-p",
            "-m",
            "--with-namesrv",
        ]);
        assert_eq!(options.define("rocketmq.namesrv.addr"), Some("x:1"));
        assert_eq!(options.define("empty"), Some(""));
        assert_eq!(options.define("a"), Some("b=c"));
        assert!(options.print_all && options.print_important && options.flag("with-namesrv"));
        assert_eq!(
            options.default_namesrv(Some("env:1".into())).as_deref(),
            Some("x:1")
        );
        assert_eq!(
            run(&[]).default_namesrv(Some("env:1".into())).as_deref(),
            Some("env:1")
        );
        assert_eq!(run(&[]).default_namesrv(Some(" ".into())), None);
    }

    #[test]
    fn the_tls_file_wins_over_defines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tls.properties");
        std::fs::write(&path, "tls.server.certPath=/file\n").unwrap();
        let file = format!("-Dtls.config.file={}", path.display());
        let given = [
            "-Dtls.server.certPath=/define",
            "-Dtls.server.mode=enforcing",
            "-Da=b",
            &file,
        ];
        let all = run(&given).load_tls().unwrap();
        assert_eq!(all.get("tls.server.certPath"), Some("/file"));
        assert_eq!(all.get("tls.server.mode"), Some("enforcing"));
        assert_eq!(all.get("a"), None);
        let error = run(&["-Dtls.config.file=/no/such"]).load_tls().unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }

    #[test]
    fn help_and_version_are_printed() {
        let Ok(Action::Print(text)) = Options::parse(&PROGRAM, ["-h"]) else {
            panic!()
        };
        assert!(text.contains("--with-namesrv") && text.contains("-c, --configFile"));
        assert_eq!(
            Options::parse(&PROGRAM, ["-V"]),
            Ok(Action::Print("prog 1.2.3".into()))
        );
    }

    #[test]
    fn mistakes_name_the_option() {
        for (args, what) in [
            (&["-c"][..], "-c needs"),
            (&["-x"], "'-x'"),
            (&["--nope"], "--nope"),
            (&["file"], "'file'"),
            (&["-D=x"], "-D=x"),
        ] {
            let error = Options::parse(&PROGRAM, args.iter().copied())
                .unwrap_err()
                .to_string();
            assert!(error.contains(what) && error.contains("prog -h"), "{error}");
        }
    }
}
