// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"io"
	"io/fs"
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
