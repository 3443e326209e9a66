// SPDX-License-Identifier: Apache-2.0

package stacknet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// SysctlRoot is the directory of the settings.
const SysctlRoot = "/proc/sys/"

// SysctlError is the error of reading or writing a setting.
type SysctlError struct {
	Key     string
	Value   string // of a write
	Write   bool
	Err     error  // the stack's error
	Instead string // the likely intended name, or the accepted values; "" if unknown
}

// Error names the setting, the value, and the problem.
func (e *SysctlError) Error() string {
	what := fmt.Sprintf("sysctl %s", e.Key)
	if e.Write {
		what = fmt.Sprintf("sysctl %s=%s", e.Key, e.Value)
	}
	switch {
	case e.Missing() && e.Instead == "" && !strings.ContainsAny(e.Key, "./"):
		return fmt.Sprintf("%s: the stack has no such setting; did you mean net.ipv4.%s?", what, e.Key)
	case e.Missing():
		return what + ": the stack has no such setting" + tail(e.Instead)
	case e.Write && (errors.Is(e.Err, syscall.EACCES) || errors.Is(e.Err, syscall.EPERM)):
		return fmt.Sprintf("%s: the setting is not writable: %v", what, errno.Errno(e.Err))
	case e.Write && e.Instead != "":
		return fmt.Sprintf("%s: the stack refused the value; %s", what, e.Instead)
	case e.Write:
		return fmt.Sprintf("%s: the stack refused the value: %v", what, errno.Errno(e.Err))
	}
	return fmt.Sprintf("%s: %v", what, errno.Errno(e.Err))
}

// Missing reports whether there is no such file. Opening a directory for writing, or
// reading it, returns EISDIR; a path below a file returns ENOTDIR. The write itself may
// return ENOENT if the kernel refuses the value, such as an unknown congestion control.
func (e *SysctlError) Missing() bool {
	var p *fs.PathError
	if errors.Is(e.Err, syscall.EISDIR) {
		return true
	}
	return errors.As(e.Err, &p) && p.Op == stackconn.OpOpen &&
		(errors.Is(p.Err, syscall.ENOENT) || errors.Is(p.Err, syscall.ENOTDIR))
}

// tail returns the end of a message.
func tail(text string) string {
	if text == "" {
		return ""
	}
	return "; " + text
}

// Unwrap returns the stack's error.
func (e *SysctlError) Unwrap() error { return e.Err }

// SysctlPath returns the file behind a key. As with sysctl(8), the first dot or slash
// determines the separator of the key: net.ipv4.ip_forward and net/ipv4/ip_forward are
// the same, and in net.ipv4.conf.eth0/1.mtu the slash stands for a dot of the interface's
// name.
func SysctlPath(key string) (string, error) {
	name := strings.TrimPrefix(key, SysctlRoot)
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		name = swapSeparators(name)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\n") {
			return "", fmt.Errorf("sysctl %q; expected a key such as net.ipv4.tcp_congestion_control", key)
		}
	}
	return SysctlRoot + name, nil
}

// SysctlKey is the reverse of SysctlPath: the key, with dots, of a file.
func SysctlKey(path string) string {
	return swapSeparators(strings.TrimPrefix(path, SysctlRoot))
}

func swapSeparators(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, s)
}

// SetSysctl writes a setting.
func SetSysctl(ctx context.Context, c *stackconn.Conn, key, value string) error {
	path, err := SysctlPath(key)
	if err != nil {
		return err
	}
	if err := c.WriteFile(ctx, path, []byte(value+"\n")); err != nil {
		return &SysctlError{Key: key, Value: value, Write: true, Err: err}
	}
	return nil
}

// SetSysctls writes settings in order, and returns the error of each. It is faster than
// SetSysctl for each of them. It writes all settings, even if one fails.
func SetSysctls(ctx context.Context, c *stackconn.Conn, all []Sysctl) []error {
	errs, files := make([]error, len(all)), make([]stackconn.Content, 0, len(all))
	index := make([]int, 0, len(all)) // of the settings in files
	for i, s := range all {
		path, err := SysctlPath(s.Key)
		if err != nil {
			errs[i] = err
			continue
		}
		index = append(index, i)
		files = append(files, stackconn.Content{Path: path, Data: []byte(s.Value + "\n")})
	}
	for n, err := range c.WriteFiles(ctx, files) {
		if s := all[index[n]]; err != nil {
			errs[index[n]] = &SysctlError{Key: s.Key, Value: s.Value, Write: true, Err: err}
		}
	}
	return errs
}

// ApplySysctls writes settings as SetSysctls does, and returns the first error. It reports the
// optional settings that the stack does not accept to without.
func ApplySysctls(ctx context.Context, c *stackconn.Conn, all []Sysctl, without func(error)) error {
	for i, err := range SetSysctls(ctx, c, all) {
		setting := new(SysctlError)
		optional := all[i].Optional && errors.As(err, &setting)
		switch {
		case optional && all[i].Quiet:
		case optional && without != nil:
			without(setting)
		case err != nil:
			return err
		}
	}
	return nil
}

// GetSysctl reads a setting, without the newline at its end.
func GetSysctl(ctx context.Context, c *stackconn.Conn, key string) (string, error) {
	path, err := SysctlPath(key)
	if err != nil {
		return "", err
	}
	b, err := c.ReadFile(ctx, path)
	if err != nil {
		return "", &SysctlError{Key: key, Err: err}
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}
