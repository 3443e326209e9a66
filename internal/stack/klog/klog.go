// SPDX-License-Identifier: Apache-2.0

// Package klog reads the log of a stack's kernel: as records from /dev/kmsg while it
// runs, else as text that lklhost has kept.
package klog

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Level is the severity: 0, emerg, to 7, debug (include/linux/kern_levels.h).
type Level uint8

var levels = []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"}

// Unknown is the level of a line without one.
const Unknown Level = 255

// String returns the level's name in dmesg(1); "" for Unknown.
func (l Level) String() string {
	if int(l) < len(levels) {
		return levels[l]
	}
	return ""
}

// MarshalText writes the name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// ParseLevel parses a name, or a number from 0 to 7.
func ParseLevel(s string) (Level, error) {
	for i, name := range levels {
		if s == name || s == strconv.Itoa(i) || s == "warning" && name == "warn" || s == "error" && name == "err" {
			return Level(i), nil
		}
	}
	return 0, fmt.Errorf("level %q; expected one of %s, or a number from 0 to 7", s, strings.Join(levels, ", "))
}

// Record is one message of the kernel.
type Record struct {
	Time     *time.Time `json:"time,omitempty"`     // of this machine's clock, to some milliseconds
	Uptime   *float64   `json:"uptime_s,omitempty"` // seconds since the kernel's start
	Sequence *uint64    `json:"sequence,omitempty"` // number of the message
	Level    Level      `json:"level,omitempty"`    // emerg, alert, crit, err, warn, notice, info or debug
	Text     string     `json:"text"`               // the message
	Lost     bool       `json:"-"`                  // no message: some were overwritten before they were read
}

// document is a Record without methods, for MarshalJSON: MarshalText cannot omit a level.
type document Record

// MarshalJSON omits an unknown level.
func (r Record) MarshalJSON() ([]byte, error) {
	if r.Level != Unknown {
		// emerg is 0, which omitempty would omit.
		return json.Marshal(struct {
			document
			Level string `json:"level"`
		}{document(r), r.Level.String()})
	}
	d := document(r)
	d.Level = 0
	return json.Marshal(d)
}

// clock converts the kernel's time, microseconds since its start, to wall-clock time.
type clock struct{ start time.Time }

// newClock finds out when the kernel started; zero if unknown.
func newClock(ctx context.Context, c *stackconn.Conn) clock {
	switch c.Hello().ABI {
	case ctlproto.CTL_ABI_NATIVE:
		// The stack's /proc/uptime shows the host's uptime
		// (read_persistent_wall_and_boot_offset() in arch/lkl/kernel/time.c).
		// Therefore this function uses the directory /root. The kernel creates it
		// in its first milliseconds (init/noinitramfs.c), and nothing writes
		// there.
		return clock{modified(ctx, c, "/root")}
	case ctlproto.CTL_ABI_HOST:
		now := time.Now()
		b, err := c.ReadFile(ctx, "/proc/uptime")
		up, _, _ := strings.Cut(string(b), " ")
		seconds, perr := strconv.ParseFloat(up, 64)
		if err == nil && perr == nil {
			return clock{now.Add(-time.Duration(seconds * float64(time.Second)))}
		}
	}
	return clock{}
}

// modified is stx_mtime of struct statx (include/uapi/linux/stat.h).
func modified(ctx context.Context, c *stackconn.Conn, path string) time.Time {
	const size, mtime = 256, 112
	b := make([]byte, size)
	_, err := c.Syscall(ctx, stackconn.Call{
		Nr:   unix.SYS_STATX,
		Args: []any{unix.AT_FDCWD, stackconn.CString(path), 0, unix.STATX_MTIME, stackconn.Out(b)},
	})
	if err != nil {
		return time.Time{}
	}
	return time.Unix(int64(binary.LittleEndian.Uint64(b[mtime:])), int64(binary.LittleEndian.Uint32(b[mtime+8:])))
}

// parseRecord parses the result of one read of /dev/kmsg:
// "LEVEL,SEQUENCE,MICROSECONDS,FLAGS;TEXT", then lines of properties
// (Documentation/ABI/testing/dev-kmsg).
func parseRecord(text string, c clock) (Record, error) {
	head, message, ok := strings.Cut(text, ";")
	f := strings.Split(head, ",")
	if !ok || len(f) < 3 {
		return Record{}, fmt.Errorf("kernel log: malformed record %q", text)
	}
	prio, err1 := strconv.ParseUint(f[0], 10, 32)
	seq, err2 := strconv.ParseUint(f[1], 10, 64)
	usec, err3 := strconv.ParseUint(f[2], 10, 63)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Record{}, fmt.Errorf("kernel log: malformed record %q", text)
	}
	message, _, _ = strings.Cut(message, "\n")
	r := Record{Sequence: &seq, Level: Level(prio & 7), Text: unescape(message)} // the higher bits are the facility
	up := float64(usec) / 1e6
	r.Uptime = &up
	if !c.start.IsZero() && usec < 1<<53 {
		at := c.start.Add(time.Duration(usec) * time.Microsecond).Truncate(time.Millisecond)
		r.Time = &at
	}
	return r, nil
}

// unescape undoes \xHH, which the kernel writes for characters that are not printable.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' {
			if n, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ToValidUTF8(b.String(), "?")
}

// recordMax is the maximum size of a record (PRINTK_MESSAGE_MAX,
// kernel/printk/internal.h, plus its header).
const recordMax = 8192

// device opens /dev/kmsg, and creates it if the stack has no /dev.
func device(ctx context.Context, c *stackconn.Conn) (*stackconn.File, error) {
	const path, major, minor = "/dev/kmsg", 1, 11 // Documentation/admin-guide/devices.txt
	f, err := c.Open(ctx, path, unix.O_RDONLY)
	if !errors.Is(err, syscall.ENOENT) || c.Hello().ABI == ctlproto.CTL_ABI_HOST {
		return f, err
	}
	if err := c.Mkdir(ctx, "/dev"); err != nil {
		return nil, err
	}
	_, err = c.Syscall(ctx, stackconn.Call{
		Nr:   unix.SYS_MKNODAT,
		Args: []any{unix.AT_FDCWD, stackconn.CString(path), unix.S_IFCHR | 0o600, int(unix.Mkdev(major, minor))},
	})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, fmt.Errorf("creating %s in the stack: %w", path, err)
	}
	return c.Open(ctx, path, unix.O_RDONLY)
}

// Read calls tell with each record of the log, the oldest first. With follow it continues
// with new records until ctx is done or tell fails.
func Read(ctx context.Context, c *stackconn.Conn, follow bool, tell func(Record) error) error {
	f, err := device(ctx, c)
	if err != nil {
		return err
	}
	defer f.Close()
	clock := newClock(ctx, c)
	buf := make([]byte, recordMax)
	for {
		n, err := 0, error(nil)
		if follow {
			n, err = f.Await(ctx, buf)
		} else {
			n, err = f.Read(ctx, buf)
		}
		switch {
		case errors.Is(err, syscall.EAGAIN): // end of the log
			return nil
		case errors.Is(err, syscall.EPIPE): // records were overwritten: continue with the oldest one
			err = tell(Record{Level: Unknown, Lost: true})
		case err == nil:
			var r Record
			if r, err = parseRecord(string(buf[:n]), clock); err == nil {
				err = tell(r)
			}
		}
		if err != nil {
			return err
		}
	}
}

// Kept returns the last lines of the log that lklhost has kept, which remain available
// after a panic. They have neither times nor levels.
func Kept(ctx context.Context, c *stackconn.Conn, tell func(Record) error) error {
	b, err := c.Log(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		r := Record{Level: Unknown, Text: strings.ToValidUTF8(strings.TrimRight(line, "\n\x00"), "?")}
		// With the prefix of printk.console_loglevel: "<5>text", as the native
		// library prints.
		if len(r.Text) > 3 && r.Text[0] == '<' && r.Text[2] == '>' && r.Text[1] >= '0' && r.Text[1] <= '7' {
			r.Level, r.Text = Level(r.Text[1]-'0'), r.Text[3:]
		}
		if err := tell(r); err != nil {
			return err
		}
	}
	return nil
}
