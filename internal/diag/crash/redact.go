// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/base/lazyregexp"
)

// blank replaces a secret.
const blank = "***"

// secretName matches parts of names whose values are secret.
const secretName = `(?:passw(?:or)?d|passphrase|\bpass\b|pwd|secret|token|credential|cookie|authorization|api[-_.]?key|access[-_.]?key|private[-_.]?key|preshared[-_.]?key|fastopen[-_.]?key|auth[-_.]?key|psk)`

var (
	// userInfo is the userinfo of a URL (RFC 3986, 3.2.1).
	userInfo = lazyregexp.New(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@]+@`)
	// header is an HTTP header with credentials (RFC 9110, 11.6.2; RFC 6265).
	header = lazyregexp.New(`(?i)((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key|secret))(\s*:\s*)[^"'\r\n]+`)
	// scheme is a credential after its scheme, anywhere in the text.
	scheme = lazyregexp.New(`(?i)\b(bearer|basic)(\s+)[a-zA-Z0-9+/._~=-]{6,}`)
	// assigned is NAME=VALUE, "NAME": "VALUE", --NAME VALUE.
	assigned = lazyregexp.New(`(?i)([a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*"?\s*[=:]\s*"?)[^\s"',;&]+`)
	flagged  = lazyregexp.New(`(?i)(--?[a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*\s+)[^\s"'-][^\s"']*`)
	// word is an option whose secret value is the next word.
	word = lazyregexp.New(`(?i)^--?[a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*$`)
	// key is a key of 32 bytes in base64, as WireGuard uses.
	key = lazyregexp.New(`\b[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=`)
	// setting is a sysctl with a secret value: a key of TCP Fast Open or IPv6.
	setting = lazyregexp.New(`(?m)^(\S*(?:_key|secret)\S*\s*=\s*).+$`)
)

// hints are substrings: each match of the expressions contains at least one. Lines
// without a hint need no matching, which saves time for a long log.
var hints = []string{"pass", "pwd", "secret", "token", "credential", "cookie", "auth", "key", "psk", "://", "bearer", "basic"}

// Text redacts text that looks like a secret: the values of names such as password and
// token, user information in URLs, HTTP headers with credentials, and keys.
func Text(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for l := range strings.Lines(s) {
		b.WriteString(line(l))
	}
	return b.String()
}

func line(s string) string {
	lower := strings.ToLower(s)
	if slices.ContainsFunc(hints, func(h string) bool { return strings.Contains(lower, h) }) {
		s = userInfo().ReplaceAllString(s, "${1}"+blank+"@")
		s = header().ReplaceAllString(s, "${1}${2}"+blank)
		s = scheme().ReplaceAllString(s, "${1}${2}"+blank)
		s = assigned().ReplaceAllString(s, "${1}"+blank)
		s = flagged().ReplaceAllString(s, "${1}"+blank)
		s = setting().ReplaceAllString(s, "${1}"+blank)
	}
	if len(s) > 43 && strings.Contains(s, "=") {
		s = key().ReplaceAllString(s, blank)
	}
	return s
}

// Setting redacts the value of a kernel setting in the same way.
func Setting(name, value string) string {
	if setting().MatchString(name + " = " + value) {
		return blank
	}
	return Text(value)
}

// Words redacts a command in the same way. In a command, a secret may also be the word
// after its name, or the value of curl's -u or mysql's -p.
func Words(command []string) []string {
	var out []string
	for i, w := range command {
		switch {
		case i > 0 && word().MatchString(command[i-1]), i > 0 && (command[i-1] == "-u" || command[i-1] == "--user") && strings.Contains(w, ":"):
			w = blank
		case i > 0 && strings.HasPrefix(w, "-p") && len(w) > 2 && strings.Contains(command[0], "sql"):
			w = "-p" + blank
		default:
			w = Text(w)
		}
		out = append(out, w)
	}
	return out
}
