//! Makes a tree of tokens. Every level of nesting is counted, so that neither this nor evaluation runs out of stack.

use super::lex::{Lexer, Token, shortened};
use super::{Expr, MAX_DEPTH, Order, ParseError};

type Result<T> = std::result::Result<T, ParseError>;

pub(super) fn parse(text: &str) -> Result<Expr> {
    let mut lexer = Lexer::new(text);
    let (at, token) = lexer.next()?;
    let mut p = Parser {
        lexer,
        at,
        token,
        depth: 0,
    };
    if p.token == Token::End {
        return Err(p.error_here("expected a condition, found nothing"));
    }
    let start = p.at;
    let root = p.or()?;
    if p.token != Token::End {
        return Err(p.expected("AND, OR or the end"));
    }
    p.condition(root, start)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token to be looked at, and where it starts.
    at: usize,
    token: Token,
    depth: usize,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token> {
        let (at, token) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Takes the token if it is this one.
    fn take(&mut self, token: &Token) -> Result<bool> {
        let found = self.token == *token;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn require(&mut self, token: &Token) -> Result<()> {
        if self.take(token)? {
            Ok(())
        } else {
            Err(self.expected(&token.shown()))
        }
    }

    fn error_here(&self, message: impl Into<String>) -> ParseError {
        self.lexer.error(self.at, message)
    }

    fn expected(&self, what: &str) -> ParseError {
        self.error_here(format!("expected {what}, found {}", self.token.shown()))
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error_here(format!("more than {MAX_DEPTH} levels of nesting")));
        }
        Ok(())
    }

    /// The expression as something that is true or false.
    fn condition(&self, e: Expr, start: usize) -> Result<Expr> {
        match e {
            Expr::Int(_) | Expr::Float(_) | Expr::Text(_) | Expr::Negate(_) => Err(self
                .lexer
                .error(start, format!("expected a condition, found only {}", kind(&e)))),
            _ => Ok(e),
        }
    }

    fn or(&mut self) -> Result<Expr> {
        let start = self.at;
        let first = self.and()?;
        if self.token != Token::Or {
            return Ok(first);
        }
        let mut any = vec![self.condition(first, start)?];
        while self.take(&Token::Or)? {
            let start = self.at;
            let next = self.and()?;
            any.push(self.condition(next, start)?);
        }
        Ok(Expr::Or(any))
    }

    fn and(&mut self) -> Result<Expr> {
        let start = self.at;
        let first = self.equality()?;
        if self.token != Token::And {
            return Ok(first);
        }
        let mut all = vec![self.condition(first, start)?];
        while self.take(&Token::And)? {
            let start = self.at;
            let next = self.equality()?;
            all.push(self.condition(next, start)?);
        }
        Ok(Expr::And(all))
    }

    fn equality(&mut self) -> Result<Expr> {
        let start = self.at;
        let depth = self.depth;
        let mut left = self.comparison()?;
        loop {
            let negated = match self.token {
                Token::Symbol("=") => false,
                Token::Symbol("<>") => true,
                Token::Is => {
                    // A chain nests its left side.
                    self.deeper()?;
                    self.advance()?;
                    let negated = self.take(&Token::Not)?;
                    if self.token != Token::Null {
                        return Err(self.expected(if negated { "NULL" } else { "NULL or NOT NULL" }));
                    }
                    self.advance()?;
                    left = Expr::IsNull {
                        value: left.into(),
                        negated,
                    };
                    continue;
                }
                _ => break,
            };
            self.deeper()?;
            self.advance()?;
            let right_start = self.at;
            let right = self.comparison()?;
            for (side, other, at) in [(&left, &right, start), (&right, &left, right_start)] {
                if *side == Expr::Null {
                    return Err(self
                        .lexer
                        .error(at, "NULL equals nothing; write IS NULL or IS NOT NULL"));
                }
                if is_truth(side)
                    && matches!(
                        other,
                        Expr::Int(_) | Expr::Float(_) | Expr::Text(_) | Expr::Negate(_)
                    )
                {
                    let hint = "NOT binds tighter than comparisons, so NOT (…) may be meant";
                    let message = format!("a truth value cannot be compared with {}; {hint}", kind(other));
                    return Err(self.lexer.error(at, message));
                }
            }
            left = Expr::Equal {
                left: left.into(),
                right: right.into(),
                negated,
            };
        }
        self.depth = depth;
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expr> {
        let start = self.at;
        let mut left = self.unary()?;
        loop {
            let order = match self.token {
                Token::Symbol("<") => Order::Less,
                Token::Symbol("<=") => Order::LessOrEqual,
                Token::Symbol(">") => Order::Greater,
                Token::Symbol(">=") => Order::GreaterOrEqual,
                Token::Not => {
                    self.advance()?;
                    left = match self.token {
                        Token::Between => self.between(left, start, true)?,
                        Token::In => self.list(left, start, true)?,
                        _ => return Err(self.expected("BETWEEN or IN after NOT")),
                    };
                    continue;
                }
                Token::Between => {
                    left = self.between(left, start, false)?;
                    continue;
                }
                Token::In => {
                    left = self.list(left, start, false)?;
                    continue;
                }
                _ => return Ok(left),
            };
            self.advance()?;
            let right = self.number()?;
            self.check_number(&left, start)?;
            left = Expr::Compare {
                order,
                left: left.into(),
                right: right.into(),
            };
        }
    }

    /// An operand that can be put in order.
    fn number(&mut self) -> Result<Expr> {
        let start = self.at;
        let e = self.unary()?;
        self.check_number(&e, start)?;
        Ok(e)
    }

    fn check_number(&self, e: &Expr, at: usize) -> Result<()> {
        match e {
            Expr::Int(_) | Expr::Float(_) | Expr::Property(_) | Expr::Negate(_) => Ok(()),
            _ => Err(self.lexer.error(
                at,
                format!("expected a number or a property to compare, found {}", kind(e)),
            )),
        }
    }

    fn between(&mut self, value: Expr, start: usize, negated: bool) -> Result<Expr> {
        self.advance()?;
        self.check_number(&value, start)?;
        let low_start = self.at;
        let low = self.number()?;
        self.require(&Token::And)?;
        let high = self.number()?;
        let reversed = match (&low, &high) {
            (Expr::Int(l), Expr::Int(h)) => l > h,
            (Expr::Int(l), Expr::Float(h)) => *l as f64 > *h,
            (Expr::Float(l), Expr::Int(h)) => *l > *h as f64,
            (Expr::Float(l), Expr::Float(h)) => l > h,
            _ => false,
        };
        if reversed && !negated {
            return Err(self
                .lexer
                .error(low_start, "the lower bound of BETWEEN is above the upper one"));
        }
        Ok(Expr::Between {
            value: value.into(),
            low: low.into(),
            high: high.into(),
            negated,
        })
    }

    fn list(&mut self, left: Expr, start: usize, negated: bool) -> Result<Expr> {
        self.advance()?;
        let Expr::Property(property) = left else {
            return Err(self.lexer.error(
                start,
                format!("expected a property before IN, found {}", kind(&left)),
            ));
        };
        self.require(&Token::Symbol("("))?;
        let mut texts = Vec::new();
        loop {
            match self.advance_text()? {
                Some(text) => texts.push(text),
                None => return Err(self.expected("a text in single quotes")),
            }
            if self.take(&Token::Symbol(")"))? {
                return Ok(Expr::In {
                    property,
                    texts,
                    negated,
                });
            }
            if !self.take(&Token::Symbol(","))? {
                return Err(self.expected("',' or ')'"));
            }
        }
    }

    fn advance_text(&mut self) -> Result<Option<String>> {
        if !matches!(self.token, Token::Text(_)) {
            return Ok(None);
        }
        match self.advance()? {
            Token::Text(text) => Ok(Some(text)),
            _ => Ok(None),
        }
    }

    fn unary(&mut self) -> Result<Expr> {
        let start = self.at;
        match self.token {
            Token::Not => {
                self.deeper()?;
                self.advance()?;
                let operand_start = self.at;
                let operand = self.unary()?;
                self.depth -= 1;
                let operand = self.condition(operand, operand_start)?;
                Ok(Expr::Not(operand.into()))
            }
            Token::Symbol("+") => {
                self.deeper()?;
                self.advance()?;
                let operand = self.unary()?;
                self.depth -= 1;
                Ok(operand)
            }
            Token::Symbol("-") => {
                self.deeper()?;
                self.advance()?;
                if let Token::Int(digits) = &self.token {
                    let value = self.int(&format!("-{digits}"), start)?;
                    self.advance()?;
                    self.depth -= 1;
                    return Ok(value);
                }
                let operand = self.unary()?;
                self.depth -= 1;
                match operand {
                    Expr::Float(f) => Ok(Expr::Float(-f)),
                    Expr::Int(n) if n != i64::MIN => Ok(Expr::Int(-n)),
                    Expr::Property(_) | Expr::Int(_) | Expr::Negate(_) => Ok(Expr::Negate(operand.into())),
                    other => Err(self
                        .lexer
                        .error(start, format!("'-' needs a number, found {}", kind(&other)))),
                }
            }
            _ => self.primary(),
        }
    }

    fn int(&self, digits: &str, at: usize) -> Result<Expr> {
        let value = digits.parse();
        value.map(Expr::Int).map_err(|_| {
            let message = format!(
                "{} is beyond 64 bits; write it as a decimal with a point",
                shortened(digits)
            );
            self.lexer.error(at, message)
        })
    }

    fn primary(&mut self) -> Result<Expr> {
        let start = self.at;
        match &self.token {
            Token::Symbol("(") => {
                self.deeper()?;
                self.advance()?;
                let inner = self.or()?;
                if !self.take(&Token::Symbol(")"))? {
                    return Err(self.expected("')', AND or OR"));
                }
                self.depth -= 1;
                return Ok(inner);
            }
            Token::Text(_)
            | Token::Int(_)
            | Token::Float(_)
            | Token::True
            | Token::False
            | Token::Null
            | Token::Name(_) => {}
            _ => {
                return Err(
                    self.expected("a property, a number, a text in single quotes, TRUE, FALSE, NULL or '('")
                );
            }
        }
        Ok(match self.advance()? {
            Token::Text(t) => Expr::Text(t),
            Token::Int(digits) => self.int(&digits, start)?,
            Token::Float(f) => Expr::Float(f),
            Token::True => Expr::Bool(true),
            Token::False => Expr::Bool(false),
            Token::Name(n) => Expr::Property(n),
            _ => Expr::Null,
        })
    }
}

/// True for what is true, false or unknown whatever the properties hold.
fn is_truth(e: &Expr) -> bool {
    !matches!(
        e,
        Expr::Null | Expr::Int(_) | Expr::Float(_) | Expr::Text(_) | Expr::Property(_) | Expr::Negate(_)
    )
}

/// The expression as an error message shows it.
fn kind(e: &Expr) -> String {
    match e {
        Expr::Null => "NULL".into(),
        Expr::Bool(b) => if *b { "TRUE" } else { "FALSE" }.into(),
        Expr::Int(n) => format!("the number {n}"),
        Expr::Float(f) => format!("the number {f:?}"),
        Expr::Text(t) => format!("the text '{}'", shortened(t)),
        Expr::Property(p) => format!("the property {}", shortened(p)),
        Expr::Negate(_) => "a number".into(),
        _ => "a condition".into(),
    }
}
