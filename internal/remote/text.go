// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

// lastLine is the last line of a text that says anything.
func lastLine(s string) string {
	last := ""
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	return last
}

// after puts a separator before a text, if there is one.
func after(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// counter tells how much is read.
type counter struct {
	r     io.Reader
	count func(int)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count(n)
	return n, err
}

// compress writes what r gives to w, compressed, and ends w with it.
func compress(w *io.PipeWriter, r io.Reader) error {
	z := gzip.NewWriter(w)
	_, err := io.Copy(z, r)
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	w.CloseWithError(err)
	if errors.Is(err, io.ErrClosedPipe) {
		return nil // the other end says why
	}
	return err
}
