// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// setting is a key with its value.
type setting struct{ key, value string }

func (c *ctl) sysctlCommand() *cobra.Command {
	var write, all, values bool
	cmd := &cobra.Command{
		Use:   "sysctl [-w KEY=VALUE...] [KEY...] | -a [PATTERN...]",
		Short: "read or change the stack's settings",
		Long: `sysctl reads settings of the stack, or writes them with -w. Keys are written
with dots or with slashes; a key that is a directory stands for all below it.
With -a every setting is read, or those that match a pattern: a part of the key,
or a glob such as 'net.ipv4.tcp_*mem'.

What is written holds at once, for new connections as the setting says.`,
		Example: `  lklctl sysctl net.ipv4.tcp_congestion_control
  lklctl sysctl -w net.ipv4.tcp_congestion_control=bbr
  lklctl sysctl -w net.mptcp.scheduler=default net.ipv4.tcp_ecn=1
  lklctl sysctl net.mptcp
  lklctl sysctl -a rmem`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && write:
				return cli.Usagef("-a reads and -w writes: choose one")
			case all:
				return nil
			case write:
				if err := someArgs("KEY=VALUE")(cmd, args); err != nil {
					return err
				}
			default:
				if err := someArgs("KEY")(cmd, args); err != nil {
					return err
				}
			}
			return checkSettings(args, write)
		},
		RunE: c.query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
			var settings []setting
			var err error
			switch {
			case write:
				settings, err = writeSettings(ctx, conn, args)
			case all:
				settings, err = readAll(ctx, conn, args)
			default:
				settings, err = readSettings(ctx, conn, args)
			}
			if err != nil {
				return err
			}
			object := map[string]string{}
			for _, s := range settings {
				object[s.key] = s.value
			}
			lines := func(w io.Writer) error { return writeLines(w, settings, values) }
			if write {
				return c.show(object, 1, nil, lines) // one that can only be written says nothing
			}
			return c.show(object, len(settings), c.nothing("instance %q has no setting that matches %s", info.Name, strings.Join(args, " ")), lines)
		}),
	}
	c.flags(cmd.Flags(), true)
	cmd.Flags().BoolVarP(&write, "write", "w", false, "write the settings KEY=VALUE")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "read every setting, or those that match")
	cmd.Flags().BoolVar(&values, "values", false, "print the values without their keys")
	return cmd
}

// checkSettings refuses what can be seen to be wrong before anything is asked
// or written: all is done, or nothing.
func checkSettings(args []string, write bool) error {
	for _, arg := range args {
		key, _, isSetting := strings.Cut(arg, "=")
		if write && !isSetting {
			return cli.Usagef("sysctl %q: not KEY=VALUE", arg)
		}
		if !write && isSetting {
			return cli.Usagef("sysctl %q: writing needs -w", arg)
		}
		if _, err := stacknet.SysctlPath(strings.TrimSpace(key)); err != nil {
			return &cli.UsageError{Err: err}
		}
	}
	return nil
}

// writeSettings writes one after another and returns what the stack made of
// each, which may differ from what was written.
func writeSettings(ctx context.Context, conn *stackconn.Conn, args []string) ([]setting, error) {
	var done []setting
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		key = strings.TrimSpace(key)
		if err := stacknet.SetSysctl(ctx, conn, key, strings.TrimSpace(value)); err != nil {
			return nil, err
		}
		now, err := stacknet.GetSysctl(ctx, conn, key)
		if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EINVAL) {
			continue // some can only be written, as net.ipv4.route.flush
		}
		if err != nil {
			return nil, err
		}
		done = append(done, setting{dotted(key), now})
	}
	return done, nil
}

func readSettings(ctx context.Context, conn *stackconn.Conn, keys []string) ([]setting, error) {
	var read []setting
	for _, key := range keys {
		value, err := stacknet.GetSysctl(ctx, conn, key)
		if errors.Is(err, syscall.EISDIR) {
			file, err := stacknet.SysctlPath(key)
			if err != nil {
				return nil, err
			}
			below, err := readBelow(ctx, conn, file, nil)
			if err != nil {
				return nil, err
			}
			read = append(read, below...)
			continue
		}
		if err != nil {
			return nil, err
		}
		read = append(read, setting{dotted(key), value})
	}
	return read, nil
}

// dotted is a key in the form that is printed.
func dotted(key string) string {
	file, err := stacknet.SysctlPath(key)
	if err != nil {
		return key // checked before
	}
	return stacknet.SysctlKey(file)
}

func readAll(ctx context.Context, conn *stackconn.Conn, patterns []string) ([]setting, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return nil, cli.Usagef("pattern %q: not a glob such as 'net.ipv4.tcp_*mem'", p)
		}
	}
	return readBelow(ctx, conn, strings.TrimSuffix(stacknet.SysctlRoot, "/"), func(key string) bool {
		return matches(key, patterns)
	})
}

// matches says whether key matches one of patterns, or there are none. A
// pattern without glob characters is a part of the key.
func matches(key string, patterns []string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if !strings.ContainsAny(p, "*?[") {
			if strings.Contains(key, p) {
				return true
			}
			continue
		}
		if ok, _ := path.Match(p, key); ok { // the pattern was checked
			return true
		}
	}
	return false
}

// readBelow reads every setting below dir that keep wants (nil: all). One that
// cannot be read by its nature is left out, as sysctl(8) -a does.
func readBelow(ctx context.Context, conn *stackconn.Conn, dir string, keep func(string) bool) ([]setting, error) {
	entries, err := conn.ReadDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	var read []setting
	for _, e := range entries {
		file := dir + "/" + e.Name
		if e.IsDir() {
			below, err := readBelow(ctx, conn, file, keep)
			if err != nil {
				return nil, err
			}
			read = append(read, below...)
			continue
		}
		key := stacknet.SysctlKey(file)
		if keep != nil && !keep(key) {
			continue
		}
		b, err := conn.ReadFile(ctx, file)
		var no syscall.Errno
		if errors.As(err, &no) { // EACCES, EIO and others: write-only, or of hardware that is absent
			continue
		}
		if err != nil {
			return nil, err
		}
		read = append(read, setting{key, strings.TrimSuffix(string(b), "\n")})
	}
	return read, nil
}
