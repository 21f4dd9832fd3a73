#include "base/sha256.h"

#include <string>
#include <vector>

#include "check.h"

namespace {

using pilotfish::Sha256;

std::string digest(const std::string& text, Sha256::Path path, size_t piece) {
  Sha256 hash(path);
  for (size_t i = 0; i < text.size(); i += piece) hash.update(text.data() + i, std::min(piece, text.size() - i));
  return hash.finish();
}

// The examples of FIPS 180-4 and of NIST's test vectors.
void test_known_answers(Sha256::Path path) {
  CHECK_EQ(digest("", path, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(digest("abc", path, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", path, 64),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(digest(std::string(1000000, 'a'), path, 997),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

void test_paths_and_pieces_agree() {
  std::string text;
  for (int size = 0; size < 300; ++size, text += static_cast<char>(size * 37)) {
    const std::string whole = digest(text, Sha256::Path::kPortable, 1024);
    for (const size_t piece : {1, 7, 63, 64, 65, 128}) CHECK_EQ(digest(text, Sha256::Path::kFastest, piece), whole);
  }
}

}  // namespace

int main() {
  test_known_answers(Sha256::Path::kFastest);
  test_known_answers(Sha256::Path::kPortable);
  test_paths_and_pieces_agree();
  return check::result();
}
