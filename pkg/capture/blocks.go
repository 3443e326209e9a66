// SPDX-License-Identifier: Apache-2.0

package capture

import "io"

// fileBuffer is the size of the write buffer in bytes.
const fileBuffer = 256 << 10

// blocks is a buffer for blocks or records. It writes only complete ones, so that a
// file ends with a complete block even if the disk is full.
type blocks struct {
	w     io.Writer
	buf   []byte
	ends  []int // ends of the blocks in buf
	wrote int64
	err   error // first error of a write
}

// add adds one block.
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

// Flush writes the buffered data.
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

// cut truncates an incomplete block at the end of a file, after a write of n
// bytes.
func (b *blocks) cut(n int) {
	whole := 0
	for _, end := range b.ends {
		if end <= n {
			whole = end
		}
	}
	if t, ok := b.w.(interface{ Truncate(size int64) error }); ok && whole < n {
		_ = t.Truncate(b.wrote + int64(whole)) // fails for a pipe
	}
}

// Close writes the buffered data.
func (b *blocks) Close() error { return b.Flush() }

// size returns the length of the file including the buffered data.
func (b *blocks) size() int64 { return b.wrote + int64(len(b.buf)) }
