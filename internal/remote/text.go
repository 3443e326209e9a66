// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
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

// headMost is what a Head keeps unless it says something else, in bytes.
const headMost = 1 << 20

// Head keeps the beginning of what a device says, which may say anything, without end.
type Head struct {
	Most int // bytes that are kept; 0: headMost
	text []byte
	more bool
}

// Write takes all and keeps what there is room for.
func (h *Head) Write(p []byte) (int, error) {
	room := cmp.Or(h.Most, headMost) - len(h.text)
	h.more = h.more || len(p) > room
	h.text = append(h.text, p[:min(len(p), room)]...)
	return len(p), nil
}

// Bytes is what was kept.
func (h *Head) Bytes() []byte { return h.text }

// String is what was kept.
func (h *Head) String() string { return string(h.text) }

// More tells whether there was more.
func (h *Head) More() bool { return h.more }
