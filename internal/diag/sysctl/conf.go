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

// Line is one line of a file, or one argument.
type Line struct {
	Where  string // FILE:LINE, "" for an argument
	Key    string // as written; may be a glob
	Value  string
	Ignore bool // "-key = value": failure is ignored
	Except bool // "-key": excluded from globs
}

// lineMax limits a line; sysctl(8) has no limit.
const lineMax = 64 << 10

// Parse parses a file in the format of sysctl.conf(5) and sysctl.d(5): "key = value"
// lines; comments begin with # or ;.
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

// ParseLine parses one "key = value".
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

// matches reports whether a glob matches key: as in file names, * does not match dots
// (sysctl.d(5)).
func (l *Line) matches(key string) bool {
	glob, err1 := stacknet.SysctlPath(l.Key)
	file, err2 := stacknet.SysctlPath(key)
	ok, err3 := path.Match(glob, file)
	return ok && err1 == nil && err2 == nil && err3 == nil
}

// Save writes settings in the format of Parse. A value of several lines does not fit in
// such a file: it is omitted, and returned in left.
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
