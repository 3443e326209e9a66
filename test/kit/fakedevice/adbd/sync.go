// SPDX-License-Identifier: Apache-2.0

package adbd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// serveSync answers file requests as in SYNC.TXT: four letters, a little-endian word and,
// in a request, a path of that many bytes. STA2 and LST2 exist since adb 1.0.39.
func serveSync(s *stream) {
	f := &syncer{r: bufio.NewReaderSize(s, 128<<10), w: s}
	for {
		id, n, err := f.head()
		if err != nil || id == "QUIT" || n > 4096 {
			return
		}
		path := make([]byte, n)
		if _, err := io.ReadFull(f.r, path); err != nil {
			return
		}
		switch id {
		case "STAT":
			err = f.stat1(string(path))
		case "STA2", "LST2":
			err = f.stat2(id, string(path))
		case "LIST":
			err = f.list(string(path))
		case "SEND":
			err = f.send(string(path))
		case "RECV":
			err = f.recv(string(path))
		default:
			err = f.fail(fmt.Sprintf("unknown command %s", id))
		}
		if err != nil {
			return
		}
	}
}

const syncChunk = 64 << 10 // of DATA, SYNC_DATA_MAX

// A syncer serves file requests. Its methods return only errors of the stream; errors of
// a file are sent as FAIL.
type syncer struct {
	r *bufio.Reader
	w io.Writer
}

func (f *syncer) head() (id string, n uint32, err error) {
	var h [8]byte
	_, err = io.ReadFull(f.r, h[:])
	return string(h[:4]), binary.LittleEndian.Uint32(h[4:]), err
}

// reply writes four letters and values: words, text, raw structures.
func (f *syncer) reply(id string, values ...any) error {
	b := []byte(id)
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b = append(b, v...)
		default:
			var err error
			if b, err = binary.Append(b, binary.LittleEndian, v); err != nil {
				return err
			}
		}
	}
	_, err := f.w.Write(b)
	return err
}

func (f *syncer) fail(text string) error {
	return f.reply("FAIL", uint32(len(text)), text)
}

// why returns a message in adbd's form: the failed action and the text of the errno.
func why(doing string, err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return doing + ": " + err.Error()
	}
	text := errno.Error() // Go uses lower case, the C library capitals
	return doing + ": " + strings.ToUpper(text[:1]) + text[1:]
}

func (f *syncer) stat1(path string) error {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		st = unix.Stat_t{} // zeros mean an error
	}
	return f.reply("STAT", st.Mode, uint32(st.Size), uint32(st.Mtim.Sec))
}

func (f *syncer) stat2(id, path string) error {
	var st unix.Stat_t
	get := unix.Lstat
	if id == "STA2" {
		get = unix.Stat
	}
	errno := unix.Errno(0)
	if err := get(path, &st); err != nil {
		st = unix.Stat_t{}
		errors.As(err, &errno)
	}
	return f.reply(id, uint32(errno), st.Dev, st.Ino, st.Mode, uint32(st.Nlink), st.Uid, st.Gid, uint64(st.Size),
		st.Atim.Sec, st.Mtim.Sec, st.Ctim.Sec)
}

func (f *syncer) list(path string) error {
	entries, _ := os.ReadDir(path) // on error: an empty list
	for _, name := range append([]string{".", ".."}, names(entries)...) {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(path, name), &st) != nil {
			continue // it was removed meanwhile
		}
		if err := f.reply("DENT", st.Mode, uint32(st.Size), uint32(st.Mtim.Sec), uint32(len(name)), name); err != nil {
			return err
		}
	}
	return f.reply("DONE", [4]uint32{})
}

func names(entries []os.DirEntry) []string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Name()
	}
	return all
}

// recv sends a file.
func (f *syncer) recv(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return f.fail(why("open failed", err))
	}
	defer file.Close()
	buf := make([]byte, syncChunk)
	for {
		n, err := file.Read(buf)
		if n > 0 {
			if err := f.reply("DATA", uint32(n), buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return f.reply("DONE", uint32(0))
		case err != nil:
			return f.fail(why("read failed", err))
		}
	}
}

// send receives a file: "PATH,MODE", then DATA, and DONE with its modification time. An
// error is reported at once. The rest of the data is discarded, because the computer
// checks for errors only after it has sent everything.
func (f *syncer) send(spec string) error {
	i := strings.LastIndexByte(spec, ',')
	mode, err := strconv.ParseUint(spec[i+1:], 0, 32)
	if i < 0 || err != nil {
		return f.fail("missing , in ID_SEND") // without a mode, the data cannot be parsed
	}
	path := spec[:i]
	failed := ""
	if err := os.MkdirAll(filepath.Dir(path), 0o775); err != nil {
		failed = why("secure_mkdirs failed", err)
	}
	var out sink
	if failed == "" {
		if out, err = create(path, uint32(mode)); err != nil {
			failed = why("couldn't create file", err)
		}
	}
	if failed != "" {
		if err := f.fail(failed); err != nil {
			return err
		}
	}
	for {
		id, n, err := f.head()
		if err != nil {
			return err
		}
		if id == "DONE" {
			if failed != "" {
				return nil
			}
			if err := out.finish(time.Unix(int64(n), 0)); err != nil {
				return f.fail(why("write failed", err))
			}
			return f.reply("OKAY", uint32(0))
		}
		if id != "DATA" || n > syncChunk {
			return f.fail("invalid data message")
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(f.r, data); err != nil {
			if failed == "" {
				out.drop()
			}
			return err
		}
		if failed != "" {
			continue
		}
		if err := out.write(data); err != nil {
			out.drop()
			failed = why("write failed", err)
			if err := f.fail(failed); err != nil {
				return err
			}
		}
	}
}

// sink is a file, or a symbolic link, being received.
type sink struct {
	path string
	file *os.File // nil: a link
	link strings.Builder
}

func create(path string, mode uint32) (sink, error) {
	_ = os.Remove(path) // as adbd does; the next call reports an obstacle
	if mode&unix.S_IFMT == unix.S_IFLNK {
		return sink{path: path}, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, os.FileMode(mode&0o777))
	return sink{path: path, file: file}, err
}

func (k *sink) write(data []byte) error {
	if k.file == nil {
		k.link.Write(data)
		return nil
	}
	_, err := k.file.Write(data)
	return err
}

func (k *sink) drop() {
	if k.file != nil {
		k.file.Close()
		_ = os.Remove(k.path) // partial file
	}
}

func (k *sink) finish(modified time.Time) error {
	if k.file == nil {
		return os.Symlink(strings.TrimRight(k.link.String(), "\x00"), k.path)
	}
	if err := k.file.Close(); err != nil {
		return err
	}
	return os.Chtimes(k.path, modified, modified)
}
