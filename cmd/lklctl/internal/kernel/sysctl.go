// SPDX-License-Identifier: Apache-2.0

// Package kernel contains the verbs about the stack's kernel: its settings, its files and its
// log.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/diag/sysctl"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// settings contains the flags of the verb sysctl.
type settings struct {
	*verb.Call
	write, all, values, dryRun, ignore bool
	pattern, save, load                string
}

// Sysctl returns the verb sysctl.
func Sysctl(c *verb.Call) *cobra.Command {
	s := &settings{Call: c}
	cmd := &cobra.Command{
		Use:   "sysctl [-w KEY=VALUE...] [KEY...] | -a [PATTERN...]",
		Short: "read or change settings of a stack",
		Long: `sysctl reads or changes settings (sysctls) of the stack. Changes apply at once,
all or none; "lklctl help settings" describes KEY, PATTERN and files.`,
		Example: `  lklctl sysctl -a 'net.ipv4.tcp_*mem'
  lklctl sysctl -w net.ipv4.tcp_congestion_control=bbr
  lklctl sysctl --load tcp.conf --dry-run`,
		Args:              s.check,
		ValidArgsFunction: c.Complete(settingNames),
		RunE:              s.run,
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	f := cmd.Flags()
	f.BoolVarP(&s.write, "write", "w", false, "change the settings KEY=VALUE")
	f.BoolVarP(&s.all, "all", "a", false, "print all settings, or those that match PATTERN")
	f.StringVarP(&s.pattern, "pattern", "r", "", "select settings that match the regular expression `REGEX`")
	f.StringVar(&s.save, "save", "", "write all settings, or those that match PATTERN, to `FILE`")
	f.StringVar(&s.load, "load", "", "change settings to those in `FILE`")
	f.BoolVar(&s.dryRun, "dry-run", false, "with -w or --load: show the changes without making them")
	f.BoolVarP(&s.ignore, "ignore", "e", false, "with -w or --load: report failures and continue")
	f.BoolVar(&s.values, "values", false, "print values without keys")
	verb.Document(cmd, map[string]string{})
	verb.DocumentWith(cmd, "--dry-run", []sysctl.Change{})
	return cmd
}

// check finds errors before anything is queried or written, so that either all
// changes are made or none.
func (s *settings) check(cmd *cobra.Command, args []string) error {
	modes := 0
	for _, on := range []bool{s.write, s.all, s.save != "", s.load != ""} {
		if on {
			modes++
		}
	}
	_, err := regexp.Compile(s.pattern)
	switch {
	case s.all && s.write:
		return exit.Usagef("-a and -w conflict; choose one")
	case modes > 1:
		return exit.Usagef("-w, -a, --save and --load conflict; choose one")
	case (s.dryRun || s.ignore) && !s.write && s.load == "":
		return exit.Usagef("--dry-run and -e require -w or --load")
	case err != nil:
		return exit.Usagef("-r %q: %v", s.pattern, err)
	case s.pattern != "" && (s.write || s.load != ""):
		return exit.Usagef("-r: conflicts with -w and --load; remove it")
	case s.load != "":
		return verb.NoArgs(cmd, args)
	case s.all || s.save != "" || s.pattern != "" && len(args) == 0:
		return checkPatterns(args)
	case s.write:
		if err := verb.SomeArgs("KEY=VALUE")(cmd, args); err != nil {
			return err
		}
	default:
		if err := verb.SomeArgs("KEY")(cmd, args); err != nil {
			return err
		}
	}
	return checkSettings(args, s.write)
}

func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return exit.Usagef("pattern %q: not a valid glob; expected one such as 'net.ipv4.tcp_*mem'", p)
		}
	}
	return nil
}

func checkSettings(args []string, write bool) error {
	for _, arg := range args {
		key, _, isSetting := strings.Cut(arg, "=")
		if write && !isSetting {
			return exit.Usagef("sysctl %q: not KEY=VALUE; add a value", arg)
		}
		if !write && isSetting {
			return exit.Usagef("sysctl %q: changing a setting requires -w", arg)
		}
		if _, err := stacknet.SysctlPath(strings.TrimSpace(key)); err != nil {
			return &exit.UsageError{Err: err}
		}
	}
	return nil
}

func (s *settings) run(cmd *cobra.Command, args []string) error {
	switch {
	case s.load != "":
		// Read the file before the stack is queried: an invalid file is
		// an error of the command line.
		lines, err := loadFile(s.load)
		if err != nil {
			return err
		}
		return s.Query(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ []string) error {
			return s.change(ctx, conn, lines)
		})(cmd, args)
	case s.write:
		var lines []sysctl.Line
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			lines = append(lines, sysctl.Line{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value)})
		}
		return s.Query(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ []string) error {
			return s.change(ctx, conn, lines)
		})(cmd, args)
	case s.save != "":
		return s.Query(s.saveFile)(cmd, args)
	}
	return s.Query(s.read)(cmd, args)
}

// read prints settings.
func (s *settings) read(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
	var read []sysctl.Setting
	var err error
	if s.all || len(args) == 0 {
		read, err = sysctl.Below(ctx, conn, "", s.wanted(args))
	} else {
		read, err = readKeys(ctx, conn, args, s.wanted(nil))
	}
	if err != nil {
		return err
	}
	object := map[string]string{}
	for _, r := range read {
		object[r.Key] = r.Value
	}
	none := s.Nothing("instance %q has no setting that matches %s", info.Name, strings.TrimSpace(strings.Join(args, " ")+" "+s.pattern))
	return s.Show(object, len(read), none, func(w io.Writer) error { return writeLines(w, read, s.values) })
}

// wanted returns a function that reports whether a key matches the patterns and -r.
func (s *settings) wanted(patterns []string) func(string) bool {
	re := regexp.MustCompile(s.pattern) // already checked
	return func(key string) bool { return sysctl.Match(key, patterns) && re.MatchString(key) }
}

// readKeys reads keys. For directories, it reads the keys below them.
func readKeys(ctx context.Context, conn *stackconn.Conn, keys []string, keep func(string) bool) ([]sysctl.Setting, error) {
	var read []sysctl.Setting
	for _, key := range keys {
		value, err := stacknet.GetSysctl(ctx, conn, key)
		if errors.Is(err, syscall.EISDIR) {
			below, err := sysctl.Below(ctx, conn, key, keep)
			if err != nil {
				return nil, err
			}
			read = append(read, below...)
			continue
		}
		if err != nil {
			return nil, sysctl.Explain(ctx, conn, err)
		}
		file, err := stacknet.SysctlPath(key)
		if err != nil {
			return nil, err
		}
		if key := stacknet.SysctlKey(file); keep(key) {
			read = append(read, sysctl.Setting{Key: key, Value: value})
		}
	}
	return read, nil
}

// settingNames completes keys with those of the stack.
func settingNames(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, _ string) []string {
	keys, err := sysctl.Keys(ctx, conn, "")
	if err != nil {
		return nil
	}
	return keys
}

// writeLines prints settings like sysctl(8).
func writeLines(w io.Writer, settings []sysctl.Setting, valuesOnly bool) error {
	var b strings.Builder
	for _, s := range settings {
		if !valuesOnly {
			fmt.Fprintf(&b, "%s = ", s.Key)
		}
		b.WriteString(s.Value + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
