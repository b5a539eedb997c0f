//! The reference in `docs/ferroctl.md`, made from the definition of the command line.
//!
//! `UPDATE=1 cargo test -p ferroctl reference` writes it.

use clap::{Command, CommandFactory as _};

use super::Cli;

const INTRODUCTION: &str = "\
# ferroctl

Administration of RocketMQ clusters from the command line: FerroMQ's and Java's. This page is made from the program;
`ferroctl COMMAND --help` says the same.

- Data goes to standard output, everything else to standard error. `-o json` and `-o yaml` are for machines and stable.
- Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 unreachable.
- What destroys asks first; without a terminal it needs `--yes`.
- Every command takes `-n` (name servers, or `NAMESRV_ADDR`), `-o table|json|yaml` and `--timeout SECONDS`; those of
  `kube` take `--namespace`, `--context` and `--kubeconfig`.
- The commands of mqadmin work under their own names and flags, whatever their case (last section).
- `kubectl ferromq` is the same program: put it, or a link to it, on the PATH as `kubectl-ferromq`.
";

fn reference() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = INTRODUCTION.to_owned();
    write(&mut text, &root, &mut vec!["ferroctl".to_owned()]);
    text.push_str("\n## mqadmin's names\n\n");
    for sub in root.get_subcommands().filter(|sub| sub.is_hide_set()) {
        text.push_str(&["- `", sub.get_name(), "`"].concat());
        if let Some(about) = sub.get_about() {
            text.push_str(&[": ", &about.to_string()].concat());
        }
        text.push('\n');
    }
    text
}

/// Help of each command that has no others below it.
fn write(text: &mut String, command: &Command, path: &mut Vec<String>) {
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
        .collect();
    if below.is_empty() {
        let everywhere = [
            "help",
            "version",
            "namesrv",
            "output",
            "timeout",
            "namespace",
            "context",
            "kubeconfig",
        ];
        let mut own = command.clone().term_width(100).mut_args(|arg| {
            let hidden = everywhere.contains(&arg.get_id().as_str());
            arg.hide(hidden)
        });
        let help = own.render_help().to_string();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(
            &[
                "\n## ",
                &path.join(" "),
                "\n\n```text\n",
                help.join("\n").trim_end(),
                "\n```\n",
            ]
            .concat(),
        );
        return;
    }
    for sub in below {
        path.push(sub.get_name().to_owned());
        write(text, sub, path);
        path.pop();
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ferroctl.md");
    let wanted = reference();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let have = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        have == wanted,
        "docs/ferroctl.md is stale: UPDATE=1 cargo test -p ferroctl reference"
    );
}
