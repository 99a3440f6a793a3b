#include "python/src/held.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/base/place.h"
#include "python/src/module.h"

namespace grapnel::python {

std::atomic<Held::Box*> Held::dying_{nullptr};

namespace {
std::atomic<bool> ended{false};
bool letting_go = false;  // guarded by the interpreter's lock
}  // namespace

Held Held::steal(PyObject* object) {
  Held out;
  if (!object) return out;
  out.box_ = new Box{.object = object};
  ++alive_;
  return out;
}

Held::Held(const Held& other) noexcept : box_(other.box_) {
  if (box_) box_->owners.fetch_add(1, std::memory_order_relaxed);
}

Held::~Held() {
  if (!box_ || box_->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  box_->next = dying_.load(std::memory_order_relaxed);
  while (!dying_.compare_exchange_weak(box_->next, box_, std::memory_order_acq_rel)) {
  }
  // Only the first asks: whoever works the list off takes all of it.
  if (!box_->next) ask_for_let_go();
}

void Held::ask_for_let_go() noexcept {
  if (ended.load(std::memory_order_acquire)) return;
  Py_AddPendingCall(
      [](void*) {
        let_go_of_dying();
        return 0;
      },
      nullptr);
}

void interpreter_ends() { ended.store(true, std::memory_order_release); }

void let_go_of_dying() {
  // An object that dies may let go of others; the outer call takes them, so that long chains need
  // no deep stack.
  if (letting_go || ended.load(std::memory_order_acquire)) return;
  letting_go = true;
  // Code that runs when objects die must not see, or lose, an exception that is on its way.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  while (Held::Box* box = Held::dying_.exchange(nullptr, std::memory_order_acq_rel)) {
    while (box) {
      Held::Box* const next = box->next;
      Py_DECREF(box->object);
      delete box;
      --Held::alive_;
      box = next;
    }
  }
  PyErr_Restore(type, value, traceback);
  letting_go = false;
}

namespace {

std::string text_of(PyObject* value) {
  std::string out = Py_TYPE(value)->tp_name;
  if (PyObject* const text = PyObject_Str(value)) {
    if (const char* const utf8 = PyUnicode_AsUTF8(text); utf8 && *utf8)
      out += std::string(": ") + utf8;
    Py_DECREF(text);
  }
  PyErr_Clear();
  return out;
}

}  // namespace

PythonError::PythonError() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(traceback);
  Py_XDECREF(type);
  what_ = std::make_shared<const std::string>(text_of(value));
  value_ = std::make_shared<Held>(Held::steal(value));
}

void PythonError::restore() const {
  const Held taken = std::move(*value_);
  PyObject* const value = taken.get();
  if (!value) return PyErr_SetString(PyExc_RuntimeError, what_->c_str());
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), Py_NewRef(value),
                PyException_GetTraceback(value));
}

void throw_python() { throw PythonError(); }

void set_python_error() noexcept {
  try {
    throw;
  } catch (const PythonError& e) {
    e.restore();
  } catch (nanobind::python_error& e) {
    e.restore();
  } catch (const GraphBreak& e) {
    PyErr_SetString(error_type(ErrorKind::graph_break), e.what());
  } catch (const IndexError& e) {
    PyErr_SetString(error_type(ErrorKind::index), e.what());
  } catch (const TypeError& e) {
    PyErr_SetString(error_type(ErrorKind::type), e.what());
  } catch (const ValueError& e) {
    PyErr_SetString(error_type(ErrorKind::value), e.what());
  } catch (const Error& e) {
    PyErr_SetString(error_type(), e.what());
  } catch (const InternalError& e) {
    PyErr_SetString(error_type(ErrorKind::internal), e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of a type that nobody knows");
  }
}

}  // namespace grapnel::python
