// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/zach-klippenstein/goadb/wire"
	"golang.org/x/sys/unix"
)

// arriveLimit is the timeout for the answer after an uploaded file. On a slow
// connection, the buffers of the server and the sockets can still contain some
// megabytes at that time.
const arriveLimit = time.Minute

// Push uploads files with adb's sync service (SYNC.TXT), over one connection. adbd
// creates missing folders. If it rejects a file, it reports this at the end of the
// file.
func (d *adbDevice) Push(ctx context.Context, files []File, dir string, progress func(int64)) error {
	s, stop, err := d.service(ctx, "sync:")
	if err != nil {
		return err
	}
	defer s.Close()
	defer stop()
	buffered := bufio.NewWriterSize(s.Conn, 2*wire.SyncMaxChunkSize)
	p := &adbPush{d: d, s: s, w: buffered, to: wire.NewSyncSender(buffered), progress: progress}
	for _, f := range files {
		if err := p.file(ctx, f, path.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	_ = p.to.SendOctetString("QUIT") // the connection is closed in any case
	_ = buffered.Flush()
	return nil
}

// adbPush is an upload of files.
type adbPush struct {
	d        *adbDevice
	s        *adbSocket
	w        *bufio.Writer
	to       wire.SyncSender
	done     int64
	progress func(int64)
}

func (p *adbPush) file(ctx context.Context, f File, to string) error {
	var content io.Reader = strings.NewReader(f.Link)
	mode := unix.S_IFLNK | uint32(0o777)
	if f.Link == "" {
		from, err := f.Open()
		if err != nil {
			return userError(p.d.Name(), "%w", err)
		}
		defer from.Close()
		content, mode = from, unix.S_IFREG|uint32(f.Mode.Perm())
	}
	// The mode is decimal, as in adb's own client.
	refused, err := p.send(fmt.Sprintf("%s,%d", to, mode), content)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refused != "":
		return userError(p.d.Name(), "uploading %s: %s", to, refused)
	case err != nil:
		if errors.Is(err, errRead) {
			return userError(p.d.Name(), "%w", err)
		}
		return p.d.failed(ctx, err)
	}
	return nil
}

var errRead = errors.New("reading")

// send uploads one file. refused is the device's reason to reject the file.
func (p *adbPush) send(spec string, content io.Reader) (refused string, err error) {
	defer func() { _ = p.s.SetDeadline(time.Time{}) }() // if the connection is broken, the next call reports it
	if err := p.to.SendOctetString("SEND"); err != nil {
		return "", err
	}
	if err := p.to.SendBytes([]byte(spec)); err != nil {
		return "", err
	}
	buf := make([]byte, wire.SyncMaxChunkSize)
	for {
		n, err := io.ReadFull(content, buf)
		if n > 0 {
			// A device that accepts no data within adbLimit counts as disconnected.
			_ = p.s.SetDeadline(time.Now().Add(adbLimit)) // if the connection is broken, the next call reports it
			if err := p.to.SendOctetString("DATA"); err != nil {
				return "", err
			}
			if err := p.to.SendBytes(buf[:n]); err != nil {
				return "", err
			}
			p.done += int64(n)
			if p.progress != nil {
				p.progress(p.done)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", errRead, err)
		}
	}
	if err := p.to.SendOctetString("DONE"); err != nil {
		return "", err
	}
	if err := p.to.SendTime(time.Now()); err != nil {
		return "", err
	}
	_ = p.s.SetDeadline(time.Now().Add(arriveLimit)) // if the connection is broken, the next call reports it
	if err := p.w.Flush(); err != nil {
		return "", err
	}
	var reason adbRefusal
	if err := p.s.status(p.message); errors.As(err, &reason) {
		return strings.Join(strings.Fields(string(reason)), " "), nil
	} else if err != nil {
		return "", err
	}
	_, err = p.message() // that of OKAY is empty
	return "", err
}

// message reads a message: its length, which adbd limits to that of a chunk, and its text.
func (p *adbPush) message() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.s, head[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > wire.SyncMaxChunkSize {
		return nil, fmt.Errorf("a message of %d bytes, more than the limit of %d", size, wire.SyncMaxChunkSize)
	}
	msg := make([]byte, size)
	_, err := io.ReadFull(p.s, msg)
	return msg, err
}
