// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/pkg/capture"
)

// captureFile is the file of a recording. It implements capture.Handler.
type captureFile struct {
	path   string // absolute, so that it is valid in other directories
	file   *os.File
	files  *capture.Files // nil until begin is called
	handed int64          // bytes written to the file
	whole  int64          // bytes in complete blocks
}

// FileError reports that a capture file cannot be created.
type FileError struct{ Err error }

// Error returns the reason.
func (e *FileError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// createCapture creates the file. The umask determines its mode, as for any
// file that a command writes.
func createCapture(path string) (*captureFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, &FileError{errno.Of(err)}
	}
	f := &captureFile{path: path, file: file}
	if abs, err := filepath.Abs(path); err == nil {
		f.path = abs
	}
	return f, nil
}

// begin writes the file header. Each batch is written before the next one is
// requested, so the file stays readable if this process dies.
func (f *captureFile) begin() (err error) {
	f.files, err = capture.NewFiles(capture.FileOptions{Path: "-", Out: f, Application: "lklrun --capture", PerBatch: true})
	return err
}

// Write writes to the file and counts the bytes.
func (f *captureFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.handed += int64(n)
	return n, err
}

// Interface adds an interface to the file.
func (f *captureFile) Interface(m *capture.Member) error { return f.kept(f.files.Interface(m)) }

// Packets writes packets to the file.
func (f *captureFile) Packets(packets []capture.Packet) error {
	return f.kept(f.files.Packets(packets))
}

// kept records that the file now ends with a complete block.
func (f *captureFile) kept(err error) error {
	if err == nil {
		f.whole = f.handed
	}
	return err
}

// finish completes the file if good is set. Otherwise, or if that fails, it
// truncates the file to its complete blocks.
func (f *captureFile) finish(good bool) error {
	var err error
	if good {
		err = f.files.Close()
	}
	if !good || err != nil {
		// Readers reject a file that ends with an incomplete block.
		_ = f.file.Truncate(f.whole) // fails for a pipe, which has no length
	}
	return err
}
