//! Evaluates a condition: true, false, unknown, or the end of evaluation.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Expr, Order};

/// A property could not be read as what it is compared with.
#[derive(Debug, PartialEq)]
pub(super) struct Unreadable;

/// True, false, or unknown.
type Truth = Result<Option<bool>, Unreadable>;

type Get<'g, 'v> = &'g dyn Fn(&str) -> Option<Cow<'v, str>>;

enum Value<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'v, str>),
}

impl Expr {
    pub(super) fn truth(&self, get: Get<'_, '_>) -> Truth {
        match self {
            Self::Bool(b) => Ok(Some(*b)),
            // A property's value is a text, and no text is true.
            Self::Property(name) => Ok(get(name).map(|_| false)),
            Self::Not(e) => Ok(e.truth(get)?.map(|b| !b)),
            Self::And(all) => chain(all, get, false),
            Self::Or(any) => chain(any, get, true),
            Self::Equal { left, right, negated } => {
                Ok(equal(left.value(get)?, right.value(get)?)?.map(|b| b != *negated))
            }
            Self::Compare { order, left, right } => compare(*order, &left.value(get)?, &right.value(get)?),
            Self::Between {
                value,
                low,
                high,
                negated,
            } => {
                let value = value.value(get)?;
                let (first, second) = if *negated {
                    (Order::Less, Order::Greater)
                } else {
                    (Order::GreaterOrEqual, Order::LessOrEqual)
                };
                let first = compare(first, &value, &low.value(get)?)?;
                if first == Some(*negated) {
                    return Ok(first);
                }
                let second = compare(second, &value, &high.value(get)?)?;
                Ok(if second == Some(*negated) {
                    second
                } else {
                    first.and(second)
                })
            }
            Self::In {
                property,
                texts,
                negated,
            } => Ok(get(property).map(|value| texts.iter().any(|t| *t == value) != *negated)),
            Self::IsNull { value, negated } => Ok(Some(matches!(value.value(get)?, Value::Null) != *negated)),
            Self::Null | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Negate(_) => Ok(None),
        }
    }

    fn value<'v>(&self, get: Get<'_, 'v>) -> Result<Value<'v>, Unreadable> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Int(n) => Value::Int(*n),
            Self::Float(f) => Value::Float(*f),
            Self::Text(t) => Value::Text(t.clone().into()),
            Self::Property(name) => get(name).map_or(Value::Null, Value::Text),
            Self::Negate(e) => match e.value(get)? {
                Value::Int(n) => Value::Int(n.wrapping_neg()),
                Value::Float(f) => Value::Float(-f),
                // Only numbers have a negative, and a property is a text.
                _ => Value::Null,
            },
            _ => self.truth(get)?.map_or(Value::Null, Value::Bool),
        })
    }
}

/// All conditions joined by OR (`end` true) or AND (`end` false): stops at the first that decides.
fn chain(parts: &[Expr], get: Get<'_, '_>, end: bool) -> Truth {
    let mut known = true;
    for part in parts {
        match part.truth(get)? {
            Some(b) if b == end => return Ok(Some(end)),
            Some(_) => {}
            None => known = false,
        }
    }
    Ok(known.then_some(!end))
}

fn equal(left: Value<'_>, right: Value<'_>) -> Truth {
    let same = match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) => return Ok(None),
        (_, Value::Null) => false,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Bool(b), Value::Text(t)) | (Value::Text(t), Value::Bool(b)) => {
            t.eq_ignore_ascii_case("true") == b
        }
        (Value::Text(a), Value::Text(b)) => a == b,
        (left, right) => ordering(&left, &right)? == Some(Ordering::Equal),
    };
    Ok(Some(same))
}

fn compare(order: Order, left: &Value<'_>, right: &Value<'_>) -> Truth {
    if matches!(left, Value::Null) || matches!(right, Value::Null) {
        return Ok(None);
    }
    let found = ordering(left, right)?;
    Ok(Some(found.is_some_and(|found| match order {
        Order::Less => found.is_lt(),
        Order::LessOrEqual => found.is_le(),
        Order::Greater => found.is_gt(),
        Order::GreaterOrEqual => found.is_ge(),
    })))
}

/// How two values stand; `None` if they have no order.
fn ordering(left: &Value<'_>, right: &Value<'_>) -> Result<Option<Ordering>, Unreadable> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
        (Value::Float(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Text(a), Value::Int(b)) => Some(int(a)?.cmp(b)),
        (Value::Int(a), Value::Text(b)) => Some(a.cmp(&int(b)?)),
        (Value::Text(a), Value::Float(b)) => float(a)?.partial_cmp(b),
        (Value::Float(a), Value::Text(b)) => a.partial_cmp(&float(b)?),
        (Value::Text(a), Value::Text(b)) => float(a)?.partial_cmp(&float(b)?),
        _ => None,
    })
}

fn int(text: &str) -> Result<i64, Unreadable> {
    text.parse().map_err(|_| Unreadable)
}

fn float(text: &str) -> Result<f64, Unreadable> {
    text.trim().parse().map_err(|_| Unreadable)
}
