// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileMax bounds the size of a file for ReadFile. The largest files of a stack, the route
// and socket tables in /proc/net, are far smaller.
const fileMax = 256 << 20

// readSize is the size of one read: /proc fills a buffer with whole lines.
const readSize = 64 << 10

// OpOpen is the Op of a fs.PathError about opening a file.
const OpOpen = "opening"

// File is an open file in the stack.
type File struct {
	c    *Conn
	fd   int
	path string
}

// Open opens a file in the stack; flags are unix.O_*.
func (c *Conn) Open(ctx context.Context, path string, flags int) (*File, error) {
	fd, err := c.Syscall(ctx, c.openCall(path, flags))
	if err != nil {
		return nil, &fs.PathError{Op: OpOpen, Path: path, Err: err}
	}
	return &File{c: c, fd: int(fd), path: path}, nil
}

func (c *Conn) openCall(path string, flags int) Call {
	// /proc/net is that of the thread group's leader, which stays in the run's namespace.
	if rest, ok := strings.CutPrefix(path, "/proc/net"); ok && c.netns && (rest == "" || rest[0] == '/') {
		path = "/proc/thread-self/net" + rest
	}
	return Call{
		Nr:   unix.SYS_OPENAT,
		Args: []any{unix.AT_FDCWD, CString(path), flags | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY, 0},
	}
}

// Read reads available data; at the end it returns io.EOF.
func (f *File) Read(ctx context.Context, p []byte) (int, error) {
	p = p[:min(len(p), transferMax)]
	n, err := f.c.Syscall(ctx, Call{Nr: unix.SYS_READ, Args: []any{f.fd, Out(p), len(p)}})
	if err != nil {
		return 0, &fs.PathError{Op: "reading", Path: f.path, Err: err}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

// Reread returns the content of a file of /proc from its begin, as if it were opened again.
func (f *File) Reread(ctx context.Context) (all []byte, err error) {
	for p := make([]byte, 8<<10); ; {
		n, err := f.c.Syscall(ctx, Call{Nr: unix.SYS_PREAD64, Args: []any{f.fd, Out(p), len(p), len(all)}})
		if err != nil {
			return nil, &fs.PathError{Op: "reading", Path: f.path, Err: err}
		}
		if n == 0 {
			return all, nil
		}
		all = append(all, p[:n]...)
	}
}

// Await is like Read but waits for data. It is for files that get more data over time,
// such as /dev/kmsg.
func (f *File) Await(ctx context.Context, p []byte) (int, error) {
	p = p[:min(len(p), transferMax)]
	n, err := f.c.wait(ctx, Call{Nr: unix.SYS_READ, Args: []any{f.fd, Out(p), len(p)}, Wait: unix.EPOLLIN})
	if err != nil {
		return 0, &fs.PathError{Op: "reading", Path: f.path, Err: err}
	}
	return int(n), nil
}

// Write writes p with one call: a file in /proc/sys accepts a value only in one piece.
func (f *File) Write(ctx context.Context, p []byte) (int, error) {
	n, err := f.c.Syscall(ctx, f.write(p))
	return f.wrote(p, n, err)
}

func (f *File) write(p []byte) Call {
	return Call{Nr: unix.SYS_WRITE, Args: []any{f.fd, In(p), len(p)}}
}

// wrote returns what Write returns, from the result of its call.
func (f *File) wrote(p []byte, n int64, err error) (int, error) {
	if err != nil {
		return 0, &fs.PathError{Op: "writing", Path: f.path, Err: err}
	}
	// A setting takes a value whole or refuses it, but in Linux 6.1 some handlers
	// return 1 for success: net.ipv6.conf.all.ignore_routes_with_linkdown.
	if int(n) < len(p) && !strings.HasPrefix(f.path, "/proc/sys/") {
		return int(n), &fs.PathError{Op: "writing", Path: f.path, Err: io.ErrShortWrite}
	}
	return int(n), nil
}

// Close closes the file. It has its own timeout.
func (f *File) Close() error { return f.c.closeFD(f.fd) }

// ReadFile returns the content of the file at path.
func (c *Conn) ReadFile(ctx context.Context, path string) ([]byte, error) {
	f, err := c.Open(ctx, path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []byte
	buf := make([]byte, readSize)
	for {
		n, err := f.Read(ctx, buf)
		all = append(all, buf[:n]...)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(all) > fileMax {
			return nil, &fs.PathError{Op: "reading", Path: path, Err: syscall.EFBIG}
		}
	}
}

// CopyFile copies the file at path to w while it reads, so that a long file needs little
// memory.
func (c *Conn) CopyFile(ctx context.Context, path string, w io.Writer) error {
	f, err := c.Open(ctx, path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, readSize)
	for {
		n, err := f.Read(ctx, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// WriteFile writes data to the existing file at path with one call.
func (c *Conn) WriteFile(ctx context.Context, path string, data []byte) error {
	f, err := c.Open(ctx, path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(ctx, data)
	return errors.Join(err, f.Close())
}

// Content is the new content of an existing file.
type Content struct {
	Path string
	Data []byte
}

// WriteFiles is like WriteFile for several files, in order. It returns the error of each.
// It writes all files, even if one fails. It opens all files before it writes the first.
func (c *Conn) WriteFiles(ctx context.Context, all []Content) []error {
	var opens, changes []Call
	for _, to := range all {
		opens = append(opens, c.openCall(to.Path, unix.O_WRONLY))
	}
	fds, errs := c.all(ctx, opens...)
	var files []*File
	var index []int // of the open files
	for i, to := range all {
		if errs[i] != nil {
			errs[i] = &fs.PathError{Op: OpOpen, Path: to.Path, Err: errs[i]}
			continue
		}
		f := &File{c: c, fd: int(fds[i]), path: to.Path}
		files, index = append(files, f), append(index, i)
		changes = append(changes, f.write(to.Data), closeCall(f.fd))
	}
	calls, err := c.startAll(context.WithoutCancel(ctx), changes...) // the files must be closed
	for n, i := range index {
		if errs[i] = err; err == nil {
			count, err := calls[2*n].Result(ctx)
			_, errs[i] = files[n].wrote(all[i].Data, count, err)
			c.forget(calls[2*n+1].id)
		}
	}
	return errs
}

// DirEntry is one name in a directory of the stack.
type DirEntry struct {
	Name string
	Type uint8 // unix.DT_*
}

// IsDir says whether the entry is a directory.
func (e DirEntry) IsDir() bool { return e.Type == unix.DT_DIR }

// ReadDir lists the directory at path, sorted by name, without "." and "..".
func (c *Conn) ReadDir(ctx context.Context, path string) ([]DirEntry, error) {
	f, err := c.Open(ctx, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var entries []DirEntry
	buf := make([]byte, readSize)
	for {
		n, err := c.Syscall(ctx, Call{Nr: unix.SYS_GETDENTS64, Args: []any{f.fd, Out(buf), len(buf)}})
		if err != nil {
			return nil, &fs.PathError{Op: "listing", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		if entries, err = parseDirents(entries, buf[:n]); err != nil {
			return nil, &fs.PathError{Op: "listing", Path: path, Err: err}
		}
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	return entries, nil
}

// parseDirents decodes struct linux_dirent64, include/linux/dirent.h:
// d_ino, d_off (8 bytes each), d_reclen (2), d_type (1), d_name.
func parseDirents(entries []DirEntry, b []byte) ([]DirEntry, error) {
	const head = 19
	for len(b) > 0 {
		if len(b) < head {
			return nil, fmt.Errorf("directory entry of %d bytes", len(b))
		}
		size := int(binary.LittleEndian.Uint16(b[16:]))
		if size < head || size > len(b) {
			return nil, fmt.Errorf("directory entry says it has %d bytes of %d", size, len(b))
		}
		name, _, _ := strings.Cut(string(b[head:size]), "\x00")
		if name != "." && name != ".." {
			entries = append(entries, DirEntry{Name: name, Type: b[18]})
		}
		b = b[size:]
	}
	return entries, nil
}

// Mkdir creates a directory in the stack. It is no error if the directory exists.
func (c *Conn) Mkdir(ctx context.Context, path string) error {
	_, err := c.Syscall(ctx, Call{Nr: unix.SYS_MKDIRAT, Args: []any{unix.AT_FDCWD, CString(path), 0o755}})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return &fs.PathError{Op: "making directory", Path: path, Err: err}
	}
	return nil
}

// Mount mounts a pseudo file system at path.
func (c *Conn) Mount(ctx context.Context, fstype, path string) error {
	_, err := c.Syscall(ctx, Call{
		Nr:   unix.SYS_MOUNT,
		Args: []any{CString(fstype), CString(path), CString(fstype), unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, nil},
	})
	if err != nil {
		return &fs.PathError{Op: "mounting " + fstype + " on", Path: path, Err: err}
	}
	return nil
}
