//! Kubernetes quantities ("100Gi", "1.5", "500m", "1e3"), parsed exactly enough to compare them.
//!
//! The API server rewrites quantities into a canonical form, so text comparison would see drift where there is none.

/// A quantity in thousandths, rounded up; saturates far above any disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Parses a quantity as the API server does. Nothing if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let end = text
            .char_indices()
            .find(|(i, c)| !(c.is_ascii_digit() || *c == '.' || (*i == 0 && (*c == '-' || *c == '+'))))
            .map_or(text.len(), |(i, _)| i);
        let (number, suffix) = text.split_at(end);
        let (numerator, denominator) = scale(suffix)?;
        let (negative, digits) = match number.as_bytes().first()? {
            b'-' => (true, &number[1..]),
            b'+' => (false, &number[1..]),
            _ => (false, number),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 18 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let fraction = &fraction[..fraction.len().min(9)];
        let part: i128 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().ok()?
        };
        let ten = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let mantissa = whole.checked_mul(ten)?.checked_add(part)?;
        let top = mantissa.checked_mul(numerator)?.checked_mul(1_000)?;
        let bottom = denominator.checked_mul(ten)?;
        let milli = top / bottom + i128::from(top % bottom != 0);
        Some(Self(if negative { -milli } else { milli }))
    }

    /// The quantity as a whole number of bytes (rounded up); nothing if negative or too large.
    pub fn bytes(self) -> Option<i64> {
        let whole = self.0 / 1_000 + i128::from(self.0 % 1_000 > 0);
        i64::try_from(whole).ok().filter(|b| *b >= 0)
    }
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    let one = |n: i128| Some((n, 1));
    match suffix {
        "" => one(1),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1_000)),
        "k" => one(1_000),
        "M" => one(1_000_000),
        "G" => one(1_000_000_000),
        "T" => one(1_000_000_000_000),
        "P" => one(1_000_000_000_000_000),
        "E" => one(1_000_000_000_000_000_000),
        "Ki" => one(1 << 10),
        "Mi" => one(1 << 20),
        "Gi" => one(1 << 30),
        "Ti" => one(1 << 40),
        "Pi" => one(1 << 50),
        "Ei" => one(1 << 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs().min(18))?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_equal() {
        for (a, b) in [
            ("1Gi", "1024Mi"),
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1e3", "1k"),
            ("1.5Gi", "1536Mi"),
        ] {
            assert_eq!(
                Quantity::parse(a).unwrap(),
                Quantity::parse(b).unwrap(),
                "{a} {b}"
            );
        }
        assert!(Quantity::parse("1G").unwrap() < Quantity::parse("1Gi").unwrap());
        assert_eq!(Quantity::parse("5Gi").unwrap().bytes(), Some(5 << 30));
    }

    #[test]
    fn others_are_refused() {
        for bad in [
            "",
            "Gi",
            "1gi",
            "1.2.3",
            ".",
            "ten",
            "1 Gi",
            "-",
            "99999999999999999999",
        ] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
    }
}
