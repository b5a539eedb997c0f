//! Tells whether a program needs a dynamic loader, because an image without a base has none and the failure in the
//! cluster ("no such file or directory") names the wrong file.

/// The loader that an ELF program names in its PT_INTERP segment; none for a static program or another kind of file.
pub fn interpreter(program: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    if program.get(..4)? != b"\x7fELF" || *program.get(5)? != 1 {
        return None;
    }
    let wide = *program.get(4)? == 2;
    let number = |offset: usize, size: usize| -> Option<u64> {
        let bytes = program.get(offset..offset.checked_add(size)?)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, &byte| (sum << 8) | u64::from(byte)),
        )
    };
    let (table, entry_size, entries) = if wide {
        (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?)
    } else {
        (number(0x1c, 4)?, number(0x2a, 2)?, number(0x2c, 2)?)
    };
    for entry in 0..entries {
        let at = usize::try_from(table.checked_add(entry * entry_size)?).ok()?;
        if number(at, 4)? == PT_INTERP {
            let (offset, size) = if wide {
                (
                    number(at.checked_add(0x08)?, 8)?,
                    number(at.checked_add(0x20)?, 8)?,
                )
            } else {
                (
                    number(at.checked_add(0x04)?, 4)?,
                    number(at.checked_add(0x10)?, 4)?,
                )
            };
            let start = usize::try_from(offset).ok()?;
            let path = program.get(start..start.checked_add(usize::try_from(size).ok()?)?)?;
            let path = path.strip_suffix(b"\0").unwrap_or(path);
            return Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::interpreter;

    fn program(kind: u32) -> Vec<u8> {
        let mut elf = vec![0_u8; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[0x20] = 64;
        elf[0x36] = 56;
        elf[0x38] = 1;
        elf[64..68].copy_from_slice(&kind.to_le_bytes());
        elf[64 + 0x08] = 120;
        elf[64 + 0x20] = 8;
        elf.extend_from_slice(b"/lib/ld\0");
        elf
    }

    #[test]
    fn names_the_loader_of_a_dynamic_program() {
        assert_eq!(interpreter(&program(3)).as_deref(), Some("/lib/ld"));
    }

    #[test]
    fn static_programs_scripts_and_cut_files_have_none() {
        assert_eq!(interpreter(&program(1)), None);
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
        let whole = program(3);
        for end in 0..whole.len() {
            assert_eq!(interpreter(&whole[..end]), None, "cut at {end}");
        }
    }
}
