// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lklrun/lklrun/internal/run/virtual"
)

// frame is a frame of a capture.
type frame struct {
	at   time.Duration // since the start of the lab
	end  string        // NODE:INTERFACE
	data []byte
}

// frames reads the frames of a capture that lklrun has written (capture.Pcapng), and no other
// form of pcapng. The reader of gopacket brings all its decoders along: 1.9 MB of program.
type frames struct {
	file *os.File
	in   *bufio.Reader
	ends []string // names of the interfaces
}

// Blocks of pcapng, their largest size, and the option with an interface's name.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6
	maxBlock       = 1 << 20
	byteOrder      = 0x1a2b3c4d
	optName        = 2
)

// errCapture is the error for what is not a capture of lklrun.
var errCapture = errors.New("not a capture of lklrun")

func openFrames(root *os.Root) (*frames, error) {
	f, err := open(root, captureFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root.Name(), plain(err))
	}
	r := &frames{file: f, in: bufio.NewReader(f)}
	if typ, body, err := r.block(); err != nil || typ != blockSection || len(body) < 4 || binary.NativeEndian.Uint32(body) != byteOrder {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Join(root.Name(), captureFile), errCapture)
	}
	return r, nil
}

// block returns the next block. At the end of the file, the error is io.EOF.
func (f *frames) block() (typ uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.NativeEndian.Uint32(head[4:])
	if size < 12 || size > maxBlock || size%4 != 0 {
		return 0, nil, errCapture
	}
	body = make([]byte, size-8)
	if _, err := io.ReadFull(f.in, body); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	if body = body[:size-12]; binary.NativeEndian.Uint32(body[len(body):size-8]) != size {
		return 0, nil, errCapture
	}
	return binary.NativeEndian.Uint32(head[:]), body, nil
}

// next returns the next frame; nil: there is none.
func (f *frames) next() (*frame, error) {
	for {
		typ, b, err := f.block()
		if errors.Is(err, io.EOF) {
			return nil, nil //nolint:nilnil // the end is no error
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.file.Name(), err)
		}
		switch typ {
		case blockInterface:
			f.ends = append(f.ends, interfaceName(b))
		case blockPacket:
			if len(b) < 20 || binary.NativeEndian.Uint32(b) >= uint32(len(f.ends)) || int64(binary.NativeEndian.Uint32(b[12:])) > int64(len(b)-20) {
				return nil, fmt.Errorf("%s: %w", f.file.Name(), errCapture)
			}
			ns := uint64(binary.NativeEndian.Uint32(b[4:]))<<32 | uint64(binary.NativeEndian.Uint32(b[8:]))
			return &frame{
				at:   time.Duration(int64(ns) - virtual.Epoch.UnixNano()),
				end:  f.ends[binary.NativeEndian.Uint32(b)],
				data: b[20 : 20+binary.NativeEndian.Uint32(b[12:])],
			}, nil
		}
	}
}

// interfaceName returns the name in the body of an Interface Description Block, or "".
func interfaceName(b []byte) string {
	for b = b[min(8, len(b)):]; len(b) >= 4; {
		code, size := binary.NativeEndian.Uint16(b), int(binary.NativeEndian.Uint16(b[2:]))
		if size > len(b)-4 {
			break
		}
		if code == optName {
			return string(b[4 : 4+size])
		}
		b = b[min(4+(size+3)&^3, len(b)):]
	}
	return ""
}
