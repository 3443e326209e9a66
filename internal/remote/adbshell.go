// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// Packets of the shell protocol: one byte for the type, a little-endian 32-bit
// length, and the data (shell_protocol.h of adb).
const (
	shellStdin      = 0
	shellStdout     = 1
	shellStderr     = 2
	shellExit       = 3
	shellCloseStdin = 4
)

// shellChunk is the amount of standard input in one packet. The device's adbd
// has a buffer for one message of the transport, at least 4 KiB.
const shellChunk = 32 << 10

// shellStream is a command on a device. Unread output blocks the command.
type shellStream struct {
	d      *adbDevice
	s      *adbSocket
	ctx    func() error // the cause, if the context has ended
	stop   func() bool
	stderr io.Writer

	writing sync.Mutex

	reading sync.Mutex
	left    uint32 // unread bytes of a packet of standard output
	ended   bool
	status  int
	err     error
}

// Start starts a shell command without a terminal.
func (d *adbDevice) Start(ctx context.Context, line string, stderr io.Writer) (Stream, error) {
	if stderr == nil {
		stderr = io.Discard
	}
	s, stop, err := d.service(ctx, "shell,v2,raw:"+line)
	if err != nil {
		return nil, err
	}
	return &shellStream{d: d, s: s, stop: stop, stderr: stderr, ctx: func() error { return context.Cause(ctx) }}, nil
}

// Run starts a shell command and waits for its end.
func (d *adbDevice) Run(ctx context.Context, c Command) (int, error) {
	st, err := d.Start(ctx, c.Line, c.Stderr)
	if err != nil {
		return 0, err
	}
	defer st.Close()
	go func() {
		if c.Stdin != nil {
			_, _ = io.Copy(st, c.Stdin) // a command may end before it has read its whole input
		}
		_ = st.CloseWrite() // fails in the same case
	}()
	out := c.Stdout
	if out == nil {
		out = io.Discard
	}
	if _, err := io.Copy(out, st); err != nil {
		return 0, err
	}
	return st.Wait()
}

// packet sends one packet.
func (st *shellStream) packet(kind byte, data []byte) error {
	st.writing.Lock()
	defer st.writing.Unlock()
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(data)))
	_, err := st.s.Write(append(head, data...))
	return err
}

// Write writes to the command's standard input.
func (st *shellStream) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n := min(len(p)-sent, shellChunk)
		if err := st.packet(shellStdin, p[sent:sent+n]); err != nil {
			return sent, st.gone(err)
		}
		sent += n
	}
	return sent, nil
}

// CloseWrite closes the command's standard input.
func (st *shellStream) CloseWrite() error {
	if err := st.packet(shellCloseStdin, nil); err != nil {
		return st.gone(err)
	}
	return nil
}

// Read reads from the command's standard output. At its end it returns io.EOF.
func (st *shellStream) Read(p []byte) (int, error) {
	st.reading.Lock()
	defer st.reading.Unlock()
	for st.left == 0 && !st.ended {
		if err := st.next(); err != nil {
			st.ended, st.err = true, st.gone(err)
		}
	}
	if st.ended {
		if st.err != nil {
			return 0, st.err
		}
		return 0, io.EOF
	}
	n, err := st.s.Read(p[:min(uint32(len(p)), st.left)])
	st.left -= uint32(n)
	if err != nil {
		st.left, st.ended, st.err = 0, true, st.gone(err)
		return n, st.err
	}
	return n, nil
}

// next reads the header of a packet. It reads the content, too, unless the content
// is standard output.
func (st *shellStream) next() error {
	var head [5]byte
	if _, err := io.ReadFull(st.s, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	switch head[0] {
	case shellStdout:
		st.left = size
		return nil
	case shellStderr:
		_, err := io.CopyN(st.stderr, st.s, int64(size))
		return err
	}
	if head[0] == shellExit && size > 0 {
		var status [1]byte
		if _, err := io.ReadFull(st.s, status[:]); err != nil {
			return err
		}
		st.ended, st.status = true, int(status[0])
		size--
	}
	_, err := io.CopyN(io.Discard, st.s, int64(size))
	return err
}

// gone returns the error for a connection that ended before the command.
func (st *shellStream) gone(err error) error {
	if cause := st.ctx(); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return broken(st.d.Name(), "the connection to the device was lost; was it unplugged?")
	}
	return broken(st.d.Name(), "connection to the device: %w", err)
}

// Wait waits for the command's end.
func (st *shellStream) Wait() (int, error) {
	_, err := io.Copy(io.Discard, st)
	return st.status, err
}

// Close ends the connection. adbd then sends SIGHUP to the shell.
func (st *shellStream) Close() error {
	st.stop()
	return st.s.Close()
}
