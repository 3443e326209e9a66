// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Line is a line of a file, or a command-line argument.
type Line struct {
	Where  string // FILE:LINE; "" for an argument
	Key    string // as written; may be a glob
	Value  string
	Ignore bool // "-key = value": a failure is ignored
	Except bool // "-key": the key is excluded from globs
}

// lineMax is the maximum length of a line; sysctl(8) has no limit.
const lineMax = 64 << 10

// Parse parses a file in the format of sysctl.conf(5) and sysctl.d(5). Each line has the
// form "key = value". Comments begin with # or ;.
func Parse(r io.Reader, name string) ([]Line, error) {
	var lines []Line
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, lineMax)
	for n := 1; sc.Scan(); n++ {
		text := strings.TrimSpace(sc.Text())
		if text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}
		l, err := ParseLine(text)
		l.Where = fmt.Sprintf("%s:%d", name, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Where, err)
		}
		lines = append(lines, l)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return lines, nil
}

// ParseLine parses one argument of the form "key = value".
func ParseLine(text string) (Line, error) {
	key, value, isSetting := strings.Cut(text, "=")
	l := Line{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value)}
	if rest, ok := strings.CutPrefix(l.Key, "-"); ok {
		l.Key, l.Ignore, l.Except = strings.TrimSpace(rest), isSetting, !isSetting
	} else if !isSetting {
		return l, fmt.Errorf("sysctl %q; expected KEY=VALUE", text)
	}
	if _, err := stacknet.SysctlPath(l.Key); err != nil {
		return l, err
	}
	if _, err := path.Match(l.Key, ""); err != nil {
		return l, fmt.Errorf("sysctl %q; expected a glob such as net.ipv4.conf.*.rp_filter", l.Key)
	}
	return l, nil
}

func (l *Line) isGlob() bool { return strings.ContainsAny(l.Key, "*?[") }

// matches reports whether a glob matches key. As in file names, where * does not match a
// slash, * does not match a dot (sysctl.d(5)).
func (l *Line) matches(key string) bool {
	glob, err1 := stacknet.SysctlPath(l.Key)
	file, err2 := stacknet.SysctlPath(key)
	ok, err3 := path.Match(glob, file)
	return ok && err1 == nil && err2 == nil && err3 == nil
}

// Save writes settings in the format of Parse. The format cannot represent a value of
// several lines. Save omits such a setting and returns it in left.
func Save(w io.Writer, settings []Setting) (left []string, err error) {
	b := bufio.NewWriter(w)
	for _, s := range settings {
		if strings.ContainsRune(s.Value, '\n') {
			left = append(left, s.Key)
			continue
		}
		fmt.Fprintf(b, "%s = %s\n", s.Key, s.Value)
	}
	return left, b.Flush()
}
