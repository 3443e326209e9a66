// SPDX-License-Identifier: Apache-2.0

package capture

import "io"

// fileBuffer is how much is gathered before it is written, in bytes.
const fileBuffer = 256 << 10

// blocks gathers blocks or records and writes them whole, so that a file ends with
// a whole one also when the disk was full.
type blocks struct {
	w     io.Writer
	buf   []byte
	ends  []int // of the blocks in buf
	wrote int64
	err   error // that ended it
}

// add takes one block.
func (b *blocks) add(block []byte) error {
	if len(b.buf)+len(block) > fileBuffer {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	b.buf = append(b.buf, block...)
	b.ends = append(b.ends, len(b.buf))
	return b.err
}

// Flush writes what is still in memory.
func (b *blocks) Flush() error {
	if b.err != nil || len(b.buf) == 0 {
		return b.err
	}
	n, err := b.w.Write(b.buf)
	if err != nil {
		b.err = err
		b.cut(n)
	}
	b.wrote += int64(n)
	b.buf, b.ends = b.buf[:0], b.ends[:0]
	return err
}

// cut takes half a block off the end of a file of which n bytes were written last.
func (b *blocks) cut(n int) {
	whole := 0
	for _, end := range b.ends {
		if end <= n {
			whole = end
		}
	}
	if t, ok := b.w.(interface{ Truncate(size int64) error }); ok && whole < n {
		_ = t.Truncate(b.wrote + int64(whole)) // a pipe cannot be cut
	}
}

// Close writes what is still in memory.
func (b *blocks) Close() error { return b.Flush() }

// size is the length of the file with what is still in memory.
func (b *blocks) size() int64 { return b.wrote + int64(len(b.buf)) }
