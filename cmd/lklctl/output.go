// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/diag/sysctl"
)

// output is standard output. Its errors must not be taken for those of the
// stack.
type output struct{ io.Writer }

// Write adds the origin to an error and hides its errno.
func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		err = errors.New("writing to standard output: " + err.Error())
	}
	return n, err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

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
