//! Changing an account file without losing what people wrote into it.
//!
//! YAML is read into a tree that has no comments, so a file that is written from its tree loses them. Here the old text is cut
//! into the lines of its members and accounts, and only the lines of what changed are written anew. That works for files in
//! block form, as all of Java's examples are; whether it worked is seen by reading the result: if it is not the
//! tree that was wanted, the caller writes the whole tree.

use serde_yaml::{Mapping, Value};

/// The text with the changes that lead from one tree to the other; None where the text is of a form that cannot be cut.
pub(super) fn keep(content: &str, old: &Mapping, new: &Mapping) -> Option<String> {
    let lines: Vec<String> = content.lines().map(str::to_owned).collect();
    let mut text = members(&lines, 0, old, new)?.join("\n");
    text.push('\n');
    let again: Value = serde_yaml::from_str(&text).ok()?;
    (again == Value::Mapping(new.clone())).then_some(text)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_remark(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

/// The name of the member that begins on a line.
fn name_on(line: &str, indent: usize) -> Option<&str> {
    if is_remark(line) || indent_of(line) != indent {
        return None;
    }
    let text = line.get(indent..)?;
    if text.starts_with(['-', '{', '[']) {
        return None;
    }
    let (name, rest) = text.split_once(':')?;
    (rest.is_empty() || rest.starts_with(' ')).then(|| name.trim().trim_matches(['"', '\'']))
}

/// Where the remarks at the end of some lines begin.
fn remarks_at_end(lines: &[String]) -> usize {
    lines
        .iter()
        .rposition(|line| !is_remark(line))
        .map_or(0, |at| at + 1)
}

/// Some lines, cut before each of these.
fn cut<'a>(lines: &'a [String], starts: &[usize]) -> impl Iterator<Item = &'a [String]> {
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([lines.len()]).collect();
    let ranges: Vec<_> = starts.iter().copied().zip(ends).collect();
    ranges.into_iter().map(|(from, to)| &lines[from..to])
}

fn written(value: &Value, indent: usize) -> Option<Vec<String>> {
    let text = serde_yaml::to_string(value).ok()?;
    Some(text.lines().map(|line| format!("{:indent$}{line}", "")).collect())
}

fn member(name: &str, value: &Value, indent: usize) -> Option<Vec<String>> {
    let mut one = Mapping::new();
    one.insert(name.into(), value.clone());
    written(&Value::Mapping(one), indent)
}

/// The lines of a mapping whose members begin in this column.
fn members(lines: &[String], indent: usize, old: &Mapping, new: &Mapping) -> Option<Vec<String>> {
    let starts: Vec<usize> = (0..lines.len())
        .filter(|&n| name_on(&lines[n], indent).is_some())
        .collect();
    if starts.len() != old.len() || (lines.iter().any(|line| !is_remark(line)) && starts.is_empty()) {
        return None;
    }
    let mut out = lines[..starts.first().copied().unwrap_or(lines.len())].to_vec();
    for piece in cut(lines, &starts) {
        let name = name_on(&piece[0], indent)?;
        let before = old.get(name)?;
        let after = new.get(name)?;
        if before == after {
            out.extend_from_slice(piece);
            continue;
        }
        let rows = match (before, after) {
            (Value::Sequence(before), Value::Sequence(after)) if name == super::file::ACCOUNTS => {
                accounts(piece, before, after)
            }
            _ => None,
        };
        if let Some(rows) = rows {
            out.extend(rows);
        } else {
            out.extend(member(name, after, indent)?);
            out.extend_from_slice(&piece[remarks_at_end(piece)..]);
        }
    }
    for (name, value) in new {
        let name = name.as_str()?;
        if old.get(name).is_none() {
            out.extend(member(name, value, indent)?);
        }
    }
    Some(out)
}

fn key_of(row: &Value) -> Option<&Value> {
    row.get("accessKey")
}

/// The lines of the list of accounts.
fn accounts(lines: &[String], old: &[Value], new: &[Value]) -> Option<Vec<String>> {
    let is_row = |line: &String| line.trim_start().starts_with("- ");
    let indent = indent_of(lines.iter().skip(1).find(|line| is_row(line))?);
    let starts: Vec<usize> = (1..lines.len())
        .filter(|&n| is_row(&lines[n]) && indent_of(&lines[n]) == indent)
        .collect();
    if starts.len() != old.len() {
        return None;
    }
    let mut out = lines[..starts[0]].to_vec();
    for (piece, before) in cut(lines, &starts).zip(old) {
        let (own, remarks) = piece.split_at(remarks_at_end(piece));
        let key = key_of(before)?;
        match new.iter().find(|row| key_of(row) == Some(key)) {
            None => {}
            Some(after) if after == before => out.extend_from_slice(own),
            Some(after) => {
                let rows = match (before, after) {
                    (Value::Mapping(before), Value::Mapping(after)) => account(own, indent, before, after),
                    _ => None,
                };
                out.extend(match rows {
                    Some(rows) => rows,
                    None => written(&Value::Sequence(vec![after.clone()]), indent)?,
                });
            }
        }
        out.extend_from_slice(remarks);
    }
    for row in new {
        if !old.iter().any(|known| key_of(known) == key_of(row)) {
            out.extend(written(&Value::Sequence(vec![row.clone()]), indent)?);
        }
    }
    Some(out)
}

/// The lines of one account, the first of which begins with a dash.
fn account(lines: &[String], indent: usize, old: &Mapping, new: &Mapping) -> Option<Vec<String>> {
    let mut plain = lines.to_vec();
    let first = plain.first_mut()?;
    first.replace_range(indent..=indent, " ");
    let column = indent_of(first);
    let mut rows = members(&plain, column, old, new)?;
    let first = rows.first_mut()?;
    if indent_of(first) != column {
        return None;
    }
    first.replace_range(indent..=indent, "-");
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# Who may do what. Ask Ann before you change it.
globalWhiteRemoteAddresses:
- 10.0.0.1   # the old scheduler

# People and programs
accounts:
  # the web shop
  - accessKey: webshop-key
    secretKey: first-secret   # until May
    # sees orders only
    topicPerms:
      - Orders=PUB|SUB
  # nobody knows
  - {accessKey: unknown-key, secret: odd, secretKey: second-secret}
  - secretKey: third-secret
    accessKey: another-key
# the end
";

    fn tree(text: &str) -> Mapping {
        serde_yaml::from_str(text).unwrap()
    }

    fn changed(change: impl FnOnce(&mut Mapping)) -> String {
        let old = tree(FILE);
        let mut new = old.clone();
        change(&mut new);
        let text = keep(FILE, &old, &new).unwrap();
        assert_eq!(tree(&text), new);
        text
    }

    fn rows(root: &mut Mapping) -> &mut Vec<Value> {
        match root.get_mut("accounts") {
            Some(Value::Sequence(rows)) => rows,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_lines_of_what_changed_are_written_anew() {
        let text = changed(|root| {
            let Value::Mapping(row) = &mut rows(root)[0] else {
                panic!()
            };
            row.insert("admin".into(), false.into());
            row.insert("topicPerms".into(), Value::Sequence(vec!["Orders=SUB".into()]));
        });
        for kept in [
            "# Who may do what. Ask Ann",
            "- 10.0.0.1   # the old scheduler",
            "  # the web shop",
            "    secretKey: first-secret   # until May",
            "# nobody knows",
            "  - {accessKey: unknown-key, secret: odd, secretKey: second-secret}",
            "# the end",
        ] {
            assert!(text.contains(kept), "{kept} in\n{text}");
        }
        assert!(!text.contains("Orders=PUB"));
    }

    #[test]
    fn accounts_come_and_go_between_the_remarks() {
        let text = changed(|root| {
            rows(root).remove(1);
            rows(root)
                .push(serde_yaml::from_str("{accessKey: brand-new-key, secretKey: fourth-secret}").unwrap());
            root.insert("dataVersion".into(), Value::Sequence(vec![1.into()]));
        });
        assert!(
            !text.contains("unknown-key") && text.contains("# nobody knows"),
            "{text}"
        );
        assert!(
            text.contains("# the end") && text.contains("brand-new-key"),
            "{text}"
        );
        let text = changed(|root| {
            root.insert(
                "globalWhiteRemoteAddresses".into(),
                Value::Sequence(vec!["10.0.0.2".into()]),
            );
            let Value::Mapping(row) = &mut rows(root)[1] else {
                panic!()
            };
            row.insert("admin".into(), true.into());
        });
        assert!(
            text.contains("# the web shop") && text.contains("# People and programs"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_cut_is_left_to_the_caller() {
        for text in [
            "{accounts: []}",
            "accounts: &a []\nother: *a\n",
            "? accounts\n: []\n",
        ] {
            let old = tree(text);
            let mut new = old.clone();
            new.insert("accounts".into(), Value::Sequence(vec![1.into()]));
            if let Some(kept) = keep(text, &old, &new) {
                assert_eq!(tree(&kept), new, "{kept}");
            }
        }
        assert_eq!(
            keep("", &Mapping::new(), &tree("a: 1")).as_deref(),
            Some("a: 1\n")
        );
    }
}
