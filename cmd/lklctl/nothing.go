// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
)

// nothingError ends a verb that found nothing, with status 1 and a message that
// is not an error. With JSON, the empty document replaces the message.
type nothingError struct{ words string }

func (e *nothingError) Error() string { return e.words }

// nothing returns the result of a verb whose table or document is empty.
func (c *ctl) nothing(format string, args ...any) error {
	return &nothingError{fmt.Sprintf(format, args...)}
}

// show prints the result of a verb: document as JSON, or the output of table. n
// is the number of results. none is the message if there are none.
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

// fail prints err in the form for its type, and returns the exit status.
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
	return exit.Nothing
}
