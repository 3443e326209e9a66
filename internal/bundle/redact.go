// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"regexp"
	"slices"
	"strings"
)

// blank stands for what was left out.
const blank = "***"

// secretName are parts of names whose values are nobody's business.
const secretName = `(?:passw(?:or)?d|passphrase|\bpass\b|pwd|secret|token|credential|cookie|authorization|api[-_.]?key|access[-_.]?key|private[-_.]?key|preshared[-_.]?key|fastopen[-_.]?key|auth[-_.]?key|psk)`

var (
	// userInfo is the userinfo of a URL (RFC 3986, 3.2.1).
	userInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@]+@`)
	// header is a header of HTTP that authorizes (RFC 9110, 11.6.2; RFC 6265).
	header = regexp.MustCompile(`(?i)((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key|secret))(\s*:\s*)[^"'\r\n]+`)
	// scheme is a credential with its scheme, wherever it stands.
	scheme = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[a-zA-Z0-9+/._~=-]{6,}`)
	// assigned is NAME=VALUE, "NAME": "VALUE", --NAME VALUE.
	assigned = regexp.MustCompile(`(?i)([a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*"?\s*[=:]\s*"?)[^\s"',;&]+`)
	flagged  = regexp.MustCompile(`(?i)(--?[a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*\s+)[^\s"'-][^\s"']*`)
	// word is a name that is followed by its value in the next word.
	word = regexp.MustCompile(`(?i)^--?[a-z0-9_.-]*` + secretName + `[a-z0-9_.-]*$`)
	// key is 32 bytes in base64, as WireGuard's keys are.
	key = regexp.MustCompile(`\b[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=`)
	// setting is a sysctl whose value is a secret: TCP Fast Open's and IPv6's.
	setting = regexp.MustCompile(`(?m)^(\S*(?:_key|secret)\S*\s*=\s*).+$`)
)

// hints are parts of every line that the expressions could find something in, so
// that a long log is not searched in vain.
var hints = []string{"pass", "pwd", "secret", "token", "credential", "cookie", "auth", "key", "psk", "://", "bearer", "basic"}

// Text blanks what looks like a secret in any text: values of names such as
// password and token, the user's part of URLs, headers that authorize, keys.
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
		s = userInfo.ReplaceAllString(s, "${1}"+blank+"@")
		s = header.ReplaceAllString(s, "${1}${2}"+blank)
		s = scheme.ReplaceAllString(s, "${1}${2}"+blank)
		s = assigned.ReplaceAllString(s, "${1}"+blank)
		s = flagged.ReplaceAllString(s, "${1}"+blank)
		s = setting.ReplaceAllString(s, "${1}"+blank)
	}
	if len(s) > 43 && strings.Contains(s, "=") {
		s = key.ReplaceAllString(s, blank)
	}
	return s
}

// Setting does it for the value of a kernel's setting.
func Setting(name, value string) string {
	if setting.MatchString(name + " = " + value) {
		return blank
	}
	return Text(value)
}

// Words does it for a command, of which a word may be the name of the next one's
// secret, or curl's -u and mysql's -p.
func Words(command []string) []string {
	var out []string
	for i, w := range command {
		switch {
		case i > 0 && word.MatchString(command[i-1]), i > 0 && (command[i-1] == "-u" || command[i-1] == "--user") && strings.Contains(w, ":"):
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
