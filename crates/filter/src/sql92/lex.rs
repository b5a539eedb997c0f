//! Cuts a condition into tokens.

use super::ParseError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Not,
    And,
    Or,
    Between,
    In,
    True,
    False,
    Null,
    Is,
    /// Digits as written; the sign before them decides whether they fit.
    Int(String),
    Float(f64),
    Text(String),
    Name(String),
    Symbol(&'static str),
    End,
}

impl Token {
    /// The token as an error message shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Not => "NOT".into(),
            Self::And => "AND".into(),
            Self::Or => "OR".into(),
            Self::Between => "BETWEEN".into(),
            Self::In => "IN".into(),
            Self::True => "TRUE".into(),
            Self::False => "FALSE".into(),
            Self::Null => "NULL".into(),
            Self::Is => "IS".into(),
            Self::Int(digits) => shortened(digits),
            Self::Float(f) => format!("{f:?}"),
            Self::Text(t) => format!("the text '{}'", shortened(t)),
            Self::Name(n) => format!("'{}'", shortened(n)),
            Self::Symbol(s) => format!("'{s}'"),
            Self::End => "the end".into(),
        }
    }
}

pub(super) fn shortened(text: &str) -> String {
    if text.chars().count() <= 40 {
        text.to_owned()
    } else {
        text.chars().take(40).chain("…".chars()).collect()
    }
}

/// Longer symbols before their beginnings.
const SYMBOLS: [&str; 11] = ["<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "+", "-"];

/// What a symbol of other languages is called here.
const ELSEWHERE: [(&str, &str); 4] = [("!=", "<>"), ("&&", "AND"), ("||", "OR"), ("!", "NOT")];

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// An error at a byte position.
    pub(super) fn error(&self, at: usize, message: impl Into<String>) -> ParseError {
        ParseError {
            position: self.text[..at].chars().count() + 1,
            message: message.into(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) -> Result<(), ParseError> {
        loop {
            let rest = self.rest();
            self.at = self.text.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{C}']).len();
            let rest = self.rest();
            if rest.starts_with("--") {
                self.at += rest.find(['\n', '\r']).unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(self.error(self.at, "this comment is not closed by */"));
                };
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    /// The next token and the byte where it starts.
    pub(super) fn next(&mut self) -> Result<(usize, Token), ParseError> {
        self.skip_blanks()?;
        let start = self.at;
        let rest = self.rest();
        let token = match rest.as_bytes() {
            [] => Token::End,
            [b'\'', ..] => self.string()?,
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => self.number()?,
            [b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$', ..] => self.name(),
            _ => self.symbol()?,
        };
        Ok((start, token))
    }

    fn symbol(&mut self) -> Result<Token, ParseError> {
        let rest = self.rest();
        if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(*s)) {
            self.at += symbol.len();
            return Ok(Token::Symbol(symbol));
        }
        if let Some((there, here)) = ELSEWHERE.iter().find(|(there, _)| rest.starts_with(there)) {
            return Err(self.error(self.at, format!("unexpected '{there}'; write {here}")));
        }
        let message = match rest.chars().next() {
            Some('"') => "unexpected '\"'; texts stand in single quotes".to_owned(),
            Some(c) => {
                format!("unexpected character {c:?}; names are made of the letters a-z, digits, '_' and '$'")
            }
            None => "unexpected end".to_owned(),
        };
        Err(self.error(self.at, message))
    }

    fn name(&mut self) -> Token {
        let rest = self.rest();
        let len = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'))
            .unwrap_or(rest.len());
        let name = &rest[..len];
        self.at += len;
        let keywords = [
            ("NOT", Token::Not),
            ("AND", Token::And),
            ("OR", Token::Or),
            ("BETWEEN", Token::Between),
            ("IN", Token::In),
            ("TRUE", Token::True),
            ("FALSE", Token::False),
            ("NULL", Token::Null),
            ("IS", Token::Is),
        ];
        let keyword = keywords
            .into_iter()
            .find(|(word, _)| name.eq_ignore_ascii_case(word));
        keyword.map_or_else(|| Token::Name(name.to_owned()), |(_, token)| token)
    }

    fn string(&mut self) -> Result<Token, ParseError> {
        let start = self.at;
        let mut text = String::new();
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(quote) = rest.find('\'') else {
                return Err(self.error(start, "this text is not closed by a quote"));
            };
            text.push_str(&rest[..quote]);
            self.at += quote + 1;
            if !self.rest().starts_with('\'') {
                return Ok(Token::Text(text));
            }
            text.push('\'');
            self.at += 1;
        }
    }

    fn digits(&mut self) -> usize {
        let rest = self.rest();
        let n = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += n;
        n
    }

    fn number(&mut self) -> Result<Token, ParseError> {
        let start = self.at;
        self.digits();
        let whole = self.at;
        if self.rest().starts_with('.') {
            self.at += 1;
            self.digits();
        }
        if self.rest().starts_with(['e', 'E']) {
            let mantissa = self.at;
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            if self.digits() == 0 {
                // No exponent: the letter begins a name, which the parser will not like.
                self.at = mantissa;
            }
        }
        let text = &self.text[start..self.at];
        if self.at > whole {
            let value: f64 = text
                .parse()
                .map_err(|_| self.error(start, format!("{} is no number", shortened(text))))?;
            if value.is_infinite() {
                return Err(self.error(start, format!("{} is too large for a decimal", shortened(text))));
            }
            return Ok(Token::Float(value));
        }
        if text.len() > 1 && text.starts_with('0') {
            return Err(self.error(start, "a whole number has no leading zeros"));
        }
        // A trailing L is allowed and means nothing.
        if self.rest().starts_with(['l', 'L']) {
            self.at += 1;
        }
        Ok(Token::Int(text.to_owned()))
    }
}
