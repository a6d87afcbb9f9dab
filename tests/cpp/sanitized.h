// Whether the core has a sanitizer's checks, which take time: less of a test is enough then. (Tests
// may be without them, so no macro tells it.)
#pragma once

bool sanitized();
