// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Cat returns the verb cat.
func Cat(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cat PATH...",
		Short: "print files of a stack, such as /proc/net/snmp",
		Long: `cat prints files of the stack, whose /proc and /sys are not those of the host.
With -o json, it prints an array of paths and contents.`,
		Example: `  lklctl cat /proc/net/mptcp
  lklctl cat /proc/version /proc/net/fib_trie
  lklctl cat /sys/class/net/eth0/statistics/rx_packets`,
		Args: verb.SomeArgs("PATH"),
		RunE: c.Query(func(ctx context.Context, _ *instance.Info, conn *stackconn.Conn, args []string) error {
			if c.Output == cli.OutputJSON {
				return catJSON(ctx, c, conn, args)
			}
			for _, path := range args {
				if err := conn.CopyFile(ctx, path, c.Stdout); err != nil {
					return catError(path, err)
				}
			}
			return nil
		}),
	}
	c.Flags(cmd.Flags(), true)
	c.NetnsFlag(cmd.Flags())
	return cmd
}

// catFile is a file in the JSON output of cat. It contains base64 if the content is
// not text.
type catFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Base64  []byte `json:"base64,omitempty"`
}

func catJSON(ctx context.Context, c *verb.Call, conn *stackconn.Conn, paths []string) error {
	files := make([]catFile, 0, len(paths))
	for _, path := range paths {
		b, err := conn.ReadFile(ctx, path)
		if err != nil {
			return catError(path, err)
		}
		f := catFile{Path: path}
		if utf8.Valid(b) {
			f.Content = string(b)
		} else {
			f.Base64 = b
		}
		files = append(files, f)
	}
	return cli.WriteJSON(c.Stdout, files)
}

// catError adds the file's path to an error, and states that the file is in the
// stack.
func catError(path string, err error) error {
	var no syscall.Errno
	switch {
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s: is a directory in the stack; name a file", path)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%s: the stack has no such file", path)
	case errors.As(err, &no):
		return fmt.Errorf("reading %s in the stack: %w", path, no)
	}
	return err
}
