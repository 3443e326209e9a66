// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Words is a list of arguments to be parsed in order.
type Words struct {
	Cmd  *cobra.Command
	Left []string
}

// Next returns the next word, or "" after the last one.
func (w *Words) Next() string {
	if len(w.Left) == 0 {
		return ""
	}
	first := w.Left[0]
	w.Left = w.Left[1:]
	return first
}

// Value returns the word after key.
func (w *Words) Value(key, what string) (string, error) {
	v := w.Next()
	if v == "" {
		return "", exit.Usagef("%s: no %s given; see %s --help", key, what, w.Cmd.CommandPath())
	}
	return v, nil
}

// Number returns the number after key.
func (w *Words) Number(key string, least, most int) (int, error) {
	v, err := w.Value(key, "number")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, exit.Usagef("%s %q: expected a number from %d to %d", key, v, least, most)
	}
	return n, nil
}

// Unexpected rejects a word.
func (w *Words) Unexpected(word string) error {
	return exit.Usagef("unexpected argument %q; see %s --help", word, w.Cmd.CommandPath())
}

// BadValue marks a value refused by the stack as an error of the command line.
func BadValue(err error) error {
	for _, no := range []error{
		stacknet.ErrNoTarget, syscall.EINVAL, syscall.ERANGE, syscall.EADDRNOTAVAIL, syscall.EOPNOTSUPP, syscall.EEXIST, syscall.ENOENT, syscall.ESRCH,
	} {
		if errors.Is(err, no) {
			return &exit.UsageError{Err: err}
		}
	}
	return err
}
