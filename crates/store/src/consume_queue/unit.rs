//! The 20 bytes of a unit: `i64 log offset · i32 record size · i64 tags code`.

/// Bytes of a unit.
pub(crate) const UNIT: u64 = 20;

/// One message's place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Log offset of the record.
    pub(crate) physical: i64,
    /// Size of the record.
    pub(crate) size: i32,
    /// Hash of its tag; deliver time of a delayed message.
    pub(crate) tags_code: i64,
}

impl Unit {
    /// Stands for an offset that the queue never had.
    pub(crate) const PRE_BLANK: Self = Self {
        physical: 0,
        size: i32::MAX,
        tags_code: 0,
    };

    /// The unit in these bytes; `None` if there aren't enough, or if they say that nothing is here.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (physical, rest) = bytes.split_first_chunk::<8>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let (tags_code, _) = rest.split_first_chunk::<8>()?;
        let unit = Self {
            physical: i64::from_be_bytes(*physical),
            size: i32::from_be_bytes(*size),
            tags_code: i64::from_be_bytes(*tags_code),
        };
        (unit.physical >= 0 && unit.size > 0).then_some(unit)
    }

    /// Its bytes.
    pub(crate) fn encode(self) -> [u8; UNIT as usize] {
        let mut out = [0; UNIT as usize];
        out[..8].copy_from_slice(&self.physical.to_be_bytes());
        out[8..12].copy_from_slice(&self.size.to_be_bytes());
        out[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        out
    }

    /// Whether it stands for no message.
    pub(crate) fn is_pre_blank(self) -> bool {
        self.physical == 0 && self.size == i32::MAX
    }

    /// Log offset after the record.
    pub(crate) fn end(self) -> i64 {
        if self.is_pre_blank() {
            0
        } else {
            self.physical.saturating_add(i64::from(self.size))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let unit = Unit {
            physical: 65_536,
            size: 131,
            tags_code: 2_598_919,
        };
        let bytes = [
            0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x83, 0, 0, 0, 0, 0, 0x27, 0xa8, 7,
        ];
        assert_eq!(unit.encode(), bytes);
        assert_eq!(Unit::parse(&bytes), Some(unit));
        let blank = [
            0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(Unit::PRE_BLANK.encode(), blank);
        assert!(Unit::parse(&blank).unwrap().is_pre_blank());
        assert_eq!(Unit::PRE_BLANK.end(), 0);
    }

    #[test]
    fn nothing_there() {
        assert_eq!(Unit::parse(&[0; 20]), None);
        assert_eq!(Unit::parse(&[0; 19]), None);
        assert_eq!(
            Unit::parse(
                &Unit {
                    physical: -1,
                    size: 9,
                    tags_code: 0
                }
                .encode()
            ),
            None
        );
    }
}
