// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"strings"
)

// lineMost is the number of bytes of a device's message that fit into an error.
const lineMost = 500

// lastLine returns the last non-empty line of a text, or the beginning of a long one.
func lastLine(s string) string {
	last := ""
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	if len(last) > lineMost {
		last = last[:lineMost] + "..."
	}
	return last
}

// after puts a separator before a text, unless the text is empty.
func after(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// counter reports the number of bytes read.
type counter struct {
	r     io.Reader
	count func(int)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count(n)
	return n, err
}

// compress writes the compressed content of r to w, and then closes w.
func compress(w *io.PipeWriter, r io.Reader) error {
	z := gzip.NewWriter(w)
	_, err := io.Copy(z, r)
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	w.CloseWithError(err)
	if errors.Is(err, io.ErrClosedPipe) {
		return nil // the reader has failed, and reports the reason
	}
	return err
}

// headMost is the default maximum size of a Head, in bytes.
const headMost = 1 << 20

// Head keeps the beginning of a device's output, which can be arbitrary and
// endless.
type Head struct {
	Most int // number of bytes to keep; 0: headMost
	text []byte
	more bool
}

// Write accepts everything and keeps the part that fits.
func (h *Head) Write(p []byte) (int, error) {
	room := cmp.Or(h.Most, headMost) - len(h.text)
	h.more = h.more || len(p) > room
	h.text = append(h.text, p[:min(len(p), room)]...)
	return len(p), nil
}

// Bytes returns the kept part.
func (h *Head) Bytes() []byte { return h.text }

// String returns the kept part.
func (h *Head) String() string { return string(h.text) }

// More reports whether a part was discarded.
func (h *Head) More() bool { return h.more }
