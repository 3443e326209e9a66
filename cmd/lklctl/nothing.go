// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/lklrun/lklrun/internal/cli"
)

// nothingError ends a verb that found nothing: status 1, and a line that is no
// error. With JSON the empty document has said so.
type nothingError struct{ words string }

func (e *nothingError) Error() string { return e.words }

// nothing is how a verb ends whose table or document is empty.
func (c *ctl) nothing(format string, args ...any) error {
	return &nothingError{fmt.Sprintf(format, args...)}
}

// show prints what a verb found: as a document, or what table writes. Of n things
// it has; none says in words that there are none.
func (c *ctl) show(document any, n int, none error, table func(io.Writer) error) error {
	switch {
	case c.output == cli.OutputJSON:
		if err := cli.WriteJSON(c.stdout, document); err != nil {
			return err
		}
	case n > 0:
		return table(c.stdout)
	}
	if n == 0 {
		return none
	}
	return nil
}

// fail tells err as its kind wants, and returns the exit status.
func (c *ctl) fail(err error) int {
	if said := (*saidError)(nil); errors.As(err, &said) {
		return said.status
	}
	none := (*nothingError)(nil)
	if !errors.As(err, &none) {
		return cli.Fail(c.stderr, program, err)
	}
	if c.output == cli.OutputTable {
		cli.Note(c.stderr, program, "%s", none.words)
	}
	return cli.ExitNothing
}
